#include "steelyard/layers/conv1d.h"

#include <stdexcept>

#include "steelyard/framework/ops/conv2d.h"
#include "steelyard/framework/ops/permute.h"
#include "steelyard/layers/init.h"

namespace steelyard {

Conv1d::Conv1d(const Conv1dOptions& options, Rng& rng) : options_(options) {
  const Conv1dOptions& o = options;
  if (o.in_channels < 1 || o.out_channels < 1 || o.kernel_size < 1) {
    throw std::invalid_argument("[Conv1d] expected channels and kernel of at least 1, got " +
                                std::to_string(o.in_channels) + ", " +
                                std::to_string(o.out_channels) + ", " +
                                std::to_string(o.kernel_size));
  }
  if (o.groups < 1 || o.in_channels % o.groups != 0 || o.out_channels % o.groups != 0) {
    throw std::invalid_argument(
        "[Conv1d] expected groups that divide in_channels = " + std::to_string(o.in_channels) +
        " and out_channels = " + std::to_string(o.out_channels) + ", got " +
        std::to_string(o.groups));
  }
  const std::int64_t in_per_group = o.in_channels / o.groups;
  const std::int64_t fan_in = in_per_group * o.kernel_size;
  weight_ = register_parameter(
      "weight", fan_in_uniform({o.out_channels, in_per_group, o.kernel_size}, fan_in, rng));
  if (o.bias) bias_ = register_parameter("bias", fan_in_uniform({o.out_channels}, fan_in, rng));
}

Variable Conv1d::forward(const Variable& x, ForwardContext&) {
  if (x.shape().size() != 3) {
    throw std::invalid_argument("[Conv1d] expected input [N, L, C], got " +
                                shape_string(x.shape()));
  }
  const Conv1dOptions& o = options_;
  const Variable row = reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)});
  const Variable kernel = reshape(weight_, {weight_.dim(0), weight_.dim(1), 1, weight_.dim(2)});
  const Variable y = conv2d(row, kernel, bias_,
                            {.stride = {1, o.stride},
                             .padding = {0, o.padding},
                             .dilation = {1, o.dilation},
                             .groups = o.groups});
  return reshape(y, {y.dim(0), y.dim(2), y.dim(3)});
}

std::string Conv1d::description() const {
  return "Conv1d(" + std::to_string(options_.in_channels) + ", " +
         std::to_string(options_.out_channels) + ", kernel " +
         std::to_string(options_.kernel_size) + ", stride " + std::to_string(options_.stride) +
         ", padding " + std::to_string(options_.padding) + (options_.bias ? ")" : ", no bias)");
}

}  // namespace steelyard
