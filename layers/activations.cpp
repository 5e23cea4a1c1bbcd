#include "layers/activations.h"

#include "framework/ops/relu.h"

namespace steelyard {

Variable ReLU::forward(const Variable& x, ForwardContext&) { return relu(x); }
Variable ReLU6::forward(const Variable& x, ForwardContext&) { return relu6(x); }

}  // namespace steelyard
