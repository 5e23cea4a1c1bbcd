#include "steelyard/layers/arithmetic.h"

#include <stdexcept>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/framework/ops/elementwise/relu.h"
#include "steelyard/framework/ops/products/matmul.h"
#include "steelyard/framework/ops/reductions/extremes.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {
namespace {

struct ArithmeticRow {
  Arithmetic value;
  const char* name;
  Variable (*function)(const Variable& a, const Variable& b);
};
constexpr ArithmeticRow kRows[] = {
    {Arithmetic::kAdd, "Add", broadcast_add},
    {Arithmetic::kSubtract, "Sub", subtract},
    {Arithmetic::kMultiply, "Mul", multiply},
    {Arithmetic::kDivide, "Div", divide},
    {Arithmetic::kDivideNoNan, "DivNoNan", divide_no_nan},
    {Arithmetic::kMaximum, "Max", maximum},
    {Arithmetic::kMinimum, "Min", minimum},
};
static_assert(has_every_value(kRows, Arithmetic::kMinimum));

void require_two(const std::string& layer, const std::vector<Variable>& inputs) {
  if (inputs.size() == 2) return;
  throw std::invalid_argument("[" + layer + "] expected 2 inputs, got " +
                              std::to_string(inputs.size()));
}

}  // namespace

Variable PairArithmetic::join(const std::vector<Variable>& inputs, ForwardContext&) {
  require_two(type_name(), inputs);
  return row_in(kRows, operation_).function(inputs[0], inputs[1]);
}

std::string PairArithmetic::type_name() const {
  return operation_ == Arithmetic::kAdd ? "BroadcastAdd" : row_in(kRows, operation_).name;
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
  const auto& row = row_in(kRows, options_.operation);
  return options_.constant_first ? row.function(value, x) : row.function(x, value);
}

std::string ConstantArithmetic::type_name() const {
  const std::string name = row_in(kRows, options_.operation).name;
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
  const std::int64_t slopes = weight_.dim(0);
  if (slopes != 1 && (x.shape().empty() || x.dim(-1) != slopes)) {
    throw std::invalid_argument("[PReLU] expected input [..., " + std::to_string(slopes) +
                                "], got " + shape_string(x.shape()));
  }
  const Variable positive = relu(x);
  return broadcast_add(positive, multiply(subtract(x, positive), weight_));
}

}  // namespace steelyard
