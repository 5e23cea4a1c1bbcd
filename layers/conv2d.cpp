#include "steelyard/layers/conv2d.h"

#include <stdexcept>

#include "steelyard/layers/init.h"

namespace steelyard {
namespace {

std::string pair_text(const std::array<std::int64_t, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

void require_sizes(const Conv2dOptions& o) {
  if (o.in_channels < 1 || o.out_channels < 1 || o.kernel_size[0] < 1 || o.kernel_size[1] < 1) {
    throw std::invalid_argument("[Conv2d] expected channels and kernel of at least 1, got " +
                                std::to_string(o.in_channels) + ", " +
                                std::to_string(o.out_channels) + ", " + pair_text(o.kernel_size));
  }
  if (o.groups < 1 || o.in_channels % o.groups != 0 || o.out_channels % o.groups != 0) {
    throw std::invalid_argument(
        "[Conv2d] expected groups that divide in_channels = " + std::to_string(o.in_channels) +
        " and out_channels = " + std::to_string(o.out_channels) + ", got " +
        std::to_string(o.groups));
  }
}

}  // namespace

Conv2d::Conv2d(const Conv2dOptions& options, Rng& rng) : options_(options) {
  require_sizes(options);
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

std::string Conv2d::description() const {
  const Conv2dOptions& o = options_;
  std::string text = "Conv2d(" + std::to_string(o.in_channels) + ", " +
                     std::to_string(o.out_channels) + ", kernel " + pair_text(o.kernel_size) +
                     ", stride " + pair_text(o.stride) + ", padding " + pair_text(o.padding);
  if (o.dilation != std::array<std::int64_t, 2>{1, 1}) {
    text += ", dilation " + pair_text(o.dilation);
  }
  if (o.groups != 1) text += ", groups " + std::to_string(o.groups);
  return text + (o.bias ? ")" : ", no bias)");
}

}  // namespace steelyard
