#include "steelyard/layers/activations.h"

#include "steelyard/framework/ops/elementwise/activations.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/reductions/softmax.h"
#include "steelyard/layers/identity.h"

namespace steelyard {

Variable ReLU::forward(const Variable& x, ForwardContext&) { return relu(x); }
Variable ReLU6::forward(const Variable& x, ForwardContext&) { return relu6(x); }
Variable LeakyReLU::forward(const Variable& x, ForwardContext&) { return leaky_relu(x, slope_); }
Variable Sigmoid::forward(const Variable& x, ForwardContext&) { return sigmoid(x); }
Variable Softmax::forward(const Variable& x, ForwardContext&) { return softmax(x); }
Variable LogSoftmax::forward(const Variable& x, ForwardContext&) { return log_softmax(x); }
Variable GELU::forward(const Variable& x, ForwardContext&) { return gelu(x); }
Variable TanhGELU::forward(const Variable& x, ForwardContext&) { return tanh_gelu(x); }
Variable SiLU::forward(const Variable& x, ForwardContext&) { return silu(x); }
Variable Hardswish::forward(const Variable& x, ForwardContext&) { return hardswish(x); }
Variable Affine::forward(const Variable& x, ForwardContext&) { return affine(x, slope_, offset_); }
Variable HardSigmoid::forward(const Variable& x, ForwardContext&) {
  return hard_sigmoid(x, slope_, offset_);
}
Variable Clamp::forward(const Variable& x, ForwardContext&) { return clamp(x, lo_, hi_); }

std::shared_ptr<Module> activation_layer(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kRelu:
      return std::make_shared<ReLU>();
    case kernels::Activation::kRelu6:
      return std::make_shared<ReLU6>();
    case kernels::Activation::kNone:
      break;
  }
  return std::make_shared<Identity>();
}

}  // namespace steelyard
