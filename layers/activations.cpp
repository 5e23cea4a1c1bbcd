#include "steelyard/layers/activations.h"

#include "steelyard/framework/ops/relu.h"
#include "steelyard/framework/ops/smooth_activations.h"

namespace steelyard {

Variable ReLU::forward(const Variable& x, ForwardContext&) { return relu(x); }
Variable ReLU6::forward(const Variable& x, ForwardContext&) { return relu6(x); }
Variable GELU::forward(const Variable& x, ForwardContext&) { return gelu(x); }
Variable SiLU::forward(const Variable& x, ForwardContext&) { return silu(x); }
Variable Hardswish::forward(const Variable& x, ForwardContext&) { return hardswish(x); }

}  // namespace steelyard
