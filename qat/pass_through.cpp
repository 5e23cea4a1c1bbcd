#include "steelyard/qat/pass_through.h"

#include <stdexcept>

#include "steelyard/framework/ops/dropout.h"
#include "steelyard/framework/ops/flatten.h"
#include "steelyard/qat/code_ops.h"
#include "steelyard/qat/quantized_layer.h"

namespace steelyard::qat {

Variable QatMaxPool2d::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? max_pool2d_codes(x, geometry_) : max_pool2d(x, geometry_);
}

Variable QatFlatten::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? flatten_codes(x) : flatten(x);
}

Variable QatActivation::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? activation_codes(x, activation_) : apply_activation(x, activation_);
}

Variable QatDropout::forward(const Variable& x, ForwardContext& context) {
  if (!context.training) return x;
  if (context.rng == nullptr) {
    throw std::invalid_argument("[QatDropout] expected a random generator in training");
  }
  return quantized(x) ? dropout_codes(x, p_, *context.rng) : dropout(x, p_, *context.rng);
}

}  // namespace steelyard::qat
