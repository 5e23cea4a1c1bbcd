#include "steelyard/layers/conv_transpose2d.h"

#include <stdexcept>

#include "steelyard/layers/init.h"

namespace steelyard {
namespace {

std::string pair_text(const std::array<std::int64_t, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

}  // namespace

ConvTranspose2d::ConvTranspose2d(const ConvTranspose2dOptions& options, Rng& rng)
    : options_(options) {
  const ConvTranspose2dOptions& o = options;
  if (o.in_channels < 1 || o.out_channels < 1 || o.kernel_size[0] < 1 || o.kernel_size[1] < 1) {
    throw std::invalid_argument(
        "[ConvTranspose2d] expected channels and kernel of at least 1, got " +
        std::to_string(o.in_channels) + ", " + std::to_string(o.out_channels) + ", " +
        pair_text(o.kernel_size));
  }
  if (o.groups < 1 || o.in_channels % o.groups != 0 || o.out_channels % o.groups != 0) {
    throw std::invalid_argument("[ConvTranspose2d] expected groups that divide in_channels = " +
                                std::to_string(o.in_channels) +
                                " and out_channels = " + std::to_string(o.out_channels) + ", got " +
                                std::to_string(o.groups));
  }
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
  const ConvTranspose2dOptions& o = options_;
  return "ConvTranspose2d(" + std::to_string(o.in_channels) + ", " +
         std::to_string(o.out_channels) + ", kernel " + pair_text(o.kernel_size) + ", stride " +
         pair_text(o.stride) + ", padding " + pair_text(o.padding) + (o.bias ? ")" : ", no bias)");
}

}  // namespace steelyard
