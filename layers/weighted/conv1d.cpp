#include "steelyard/layers/weighted/conv1d.h"

#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/conv_options.h"
#include "steelyard/layers/weighted/one_row.h"

namespace steelyard {

Conv1d::Conv1d(const Conv1dOptions& options, Rng& rng) : options_(options) {
  const Conv1dOptions& o = options;
  conv_options::require_sizes("Conv1d", o);
  const std::int64_t in_per_group = o.in_channels / o.groups;
  const std::int64_t fan_in = in_per_group * o.kernel_size;
  weight_ = register_parameter(
      "weight", fan_in_uniform({o.out_channels, in_per_group, o.kernel_size}, fan_in, rng));
  if (o.bias) bias_ = register_parameter("bias", fan_in_uniform({o.out_channels}, fan_in, rng));
}

Variable Conv1d::forward(const Variable& x, ForwardContext&) {
  return on_one_row("Conv1d", x, [&](const Variable& row) {
    const Variable kernel = reshape(weight_, {weight_.dim(0), weight_.dim(1), 1, weight_.dim(2)});
    return conv2d(row, kernel, bias_, options_.geometry());
  });
}

std::string Conv1d::description() const { return conv_options::described("Conv1d", options_); }

}  // namespace steelyard
