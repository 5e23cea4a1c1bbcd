#include "steelyard/layers/weighted/conv2d.h"

#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/conv_options.h"

namespace steelyard {

Conv2d::Conv2d(const Conv2dOptions& options, Rng& rng) : options_(options) {
  conv_options::require_sizes("Conv2d", options);
  const auto [kernel_h, kernel_w] = options.kernel_size;
  const std::int64_t in_per_group = options.in_channels / options.groups;
  const std::int64_t fan_in = in_per_group * kernel_h * kernel_w;
  weight_ = register_parameter(
      "weight",
      fan_in_uniform({options.out_channels, in_per_group, kernel_h, kernel_w}, fan_in, rng));
  if (options.bias) {
    bias_ = register_parameter("bias", fan_in_uniform({options.out_channels}, fan_in, rng));
  }
}

Variable Conv2d::forward(const Variable& x, ForwardContext&) {
  return conv2d(x, weight_, bias_, options_.geometry());
}

std::string Conv2d::description() const { return conv_options::described("Conv2d", options_); }

}  // namespace steelyard
