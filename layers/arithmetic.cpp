#include "steelyard/layers/arithmetic.h"

#include <stdexcept>

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/extremes.h"
#include "steelyard/framework/ops/matmul.h"
#include "steelyard/framework/ops/relu.h"

namespace steelyard {
namespace {

Variable combined(Arithmetic operation, const Variable& a, const Variable& b) {
  switch (operation) {
    case Arithmetic::kAdd:
      return broadcast_add(a, b);
    case Arithmetic::kSubtract:
      return subtract(a, b);
    case Arithmetic::kMultiply:
      return multiply(a, b);
    case Arithmetic::kDivideNoNan:
      return divide_no_nan(a, b);
    case Arithmetic::kMaximum:
      return maximum(a, b);
    case Arithmetic::kMinimum:
      return minimum(a, b);
    case Arithmetic::kDivide:
      break;
  }
  return divide(a, b);
}

void require_two(const std::string& layer, const std::vector<Variable>& inputs) {
  if (inputs.size() == 2) return;
  throw std::invalid_argument("[" + layer + "] expected 2 inputs, got " +
                              std::to_string(inputs.size()));
}

}  // namespace

const char* arithmetic_name(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::kAdd:
      return "Add";
    case Arithmetic::kSubtract:
      return "Sub";
    case Arithmetic::kMultiply:
      return "Mul";
    case Arithmetic::kDivideNoNan:
      return "DivNoNan";
    case Arithmetic::kMaximum:
      return "Max";
    case Arithmetic::kMinimum:
      return "Min";
    case Arithmetic::kDivide:
      break;
  }
  return "Div";
}

Variable PairArithmetic::join(const std::vector<Variable>& inputs, ForwardContext&) {
  require_two(type_name(), inputs);
  return combined(operation_, inputs[0], inputs[1]);
}

std::string PairArithmetic::type_name() const {
  return operation_ == Arithmetic::kAdd ? "BroadcastAdd" : arithmetic_name(operation_);
}

ConstantArithmetic::ConstantArithmetic(const ConstantArithmeticOptions& options, Tensor value)
    : options_(options) {
  if (options.trainable) {
    parameter_ = register_parameter("value", std::move(value));
  } else {
    buffer_ = register_buffer("value", std::move(value));
  }
}

Variable ConstantArithmetic::forward(const Variable& x, ForwardContext&) {
  const Variable value = parameter_.defined() ? parameter_ : Variable(buffer_);
  return options_.constant_first ? combined(options_.operation, value, x)
                                 : combined(options_.operation, x, value);
}

std::string ConstantArithmetic::type_name() const {
  const std::string name = arithmetic_name(options_.operation);
  return options_.constant_first ? "Constant" + name : name + "Constant";
}

std::string ConstantArithmetic::description() const {
  const Shape& shape = parameter_.defined() ? parameter_.shape() : buffer_.shape();
  return type_name() + "(" + shape_string(shape) + (options_.trainable ? ")" : ", fixed)");
}

Variable MatMul::join(const std::vector<Variable>& inputs, ForwardContext&) {
  require_two("MatMul", inputs);
  return matmul(inputs[0], inputs[1]);
}

PReLU::PReLU(std::int64_t slopes)
    : weight_(register_parameter("weight", Tensor::full({slopes}, 0.25))) {}

// max(x, 0) + slope * min(x, 0).
Variable PReLU::forward(const Variable& x, ForwardContext&) {
  const Variable positive = relu(x);
  return broadcast_add(positive, multiply(subtract(x, positive), weight_));
}

}  // namespace steelyard
