#include "steelyard/layers/norms/instance_norm.h"

#include <numeric>
#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/unary.h"

namespace steelyard {
namespace {

const InstanceNormOptions& checked(const InstanceNormOptions& o) {
  if (o.channels < 1 || !(o.eps > 0.0)) {
    throw std::invalid_argument("[InstanceNorm] expected channels >= 1 and eps > 0, got " +
                                std::to_string(o.channels) + " and " + std::to_string(o.eps));
  }
  return o;
}

}  // namespace

InstanceNorm::InstanceNorm(const InstanceNormOptions& options)
    : options_(checked(options)),
      weight_(register_parameter("weight", Tensor::full({options.channels}, 1.0))),
      bias_(register_parameter("bias", Tensor::zeros({options.channels}))) {}

Variable InstanceNorm::forward(const Variable& x, ForwardContext&) {
  if (x.shape().size() < 3 || x.shape().back() != options_.channels) {
    throw std::invalid_argument("[InstanceNorm] expected [N, ..., " +
                                std::to_string(options_.channels) + "], got " +
                                shape_string(x.shape()));
  }
  std::vector<std::int64_t> axes(x.shape().size() - 2);
  std::iota(axes.begin(), axes.end(), 1);
  const Variable centred = x - mean(x, axes, ReducedAxes::kKeep);
  const Variable variance = mean(centred * centred, axes, ReducedAxes::kKeep);
  return centred / sqrt(variance + options_.eps) * weight_ + bias_;
}

std::string InstanceNorm::description() const {
  return "InstanceNorm(" + std::to_string(options_.channels) + ")";
}

}  // namespace steelyard
