#include "steelyard/layers/weighted/conv_transpose2d.h"

#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/conv_options.h"

namespace steelyard {

ConvTranspose2d::ConvTranspose2d(const ConvTranspose2dOptions& options, Rng& rng)
    : options_(options) {
  const ConvTranspose2dOptions& o = options;
  conv_options::require_sizes("ConvTranspose2d", o);
  const std::int64_t out_per_group = o.out_channels / o.groups;
  const std::int64_t fan_in = out_per_group * o.kernel_size[0] * o.kernel_size[1];
  weight_ = register_parameter(
      "weight", fan_in_uniform({o.in_channels, out_per_group, o.kernel_size[0], o.kernel_size[1]},
                               fan_in, rng));
  if (o.bias) bias_ = register_parameter("bias", fan_in_uniform({o.out_channels}, fan_in, rng));
}

Variable ConvTranspose2d::forward(const Variable& x, ForwardContext&) {
  return conv_transpose2d(x, weight_, bias_, options_.geometry());
}

std::string ConvTranspose2d::description() const {
  return conv_options::described("ConvTranspose2d", options_);
}

}  // namespace steelyard
