#include "steelyard/layers/elementwise.h"

#include <fmt/core.h>

#include "steelyard/framework/ops/elementwise/unary.h"

namespace steelyard {

Variable Elementwise::forward(const Variable& x, ForwardContext&) {
  return apply_unary(function_, x, parameter_);
}

std::string Elementwise::type_name() const { return row_in(kUnaryNames, function_).layer; }

std::string Elementwise::description() const {
  using kernels::UnaryFunction;
  const bool has_parameter = function_ == UnaryFunction::kPower || function_ == UnaryFunction::kElu;
  return has_parameter ? fmt::format("{}({})", type_name(), parameter_) : type_name();
}

}  // namespace steelyard
