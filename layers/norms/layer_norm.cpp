#include "steelyard/layers/norms/layer_norm.h"

#include <stdexcept>

#include "steelyard/framework/ops/reductions/layer_norm.h"

namespace steelyard {
namespace {

const LayerNormOptions& checked(const LayerNormOptions& o) {
  if (o.features < 1 || !(o.eps > 0.0)) {
    throw std::invalid_argument("[LayerNorm] expected features >= 1 and eps > 0, got " +
                                std::to_string(o.features) + " and " + std::to_string(o.eps));
  }
  return o;
}

}  // namespace

LayerNorm::LayerNorm(const LayerNormOptions& options)
    : options_(checked(options)),
      weight_(register_parameter("weight", Tensor::full({options.features}, 1.0))),
      bias_(register_parameter("bias", Tensor::zeros({options.features}))) {}

Variable LayerNorm::forward(const Variable& x, ForwardContext&) {
  return layer_norm(x, weight_, bias_, options_.eps);
}

std::string LayerNorm::description() const {
  return "LayerNorm(" + std::to_string(options_.features) + ")";
}

}  // namespace steelyard
