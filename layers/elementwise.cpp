#include "steelyard/layers/elementwise.h"

#include <fmt/core.h>

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/framework/ops/extremes.h"
#include "steelyard/framework/ops/unary.h"

namespace steelyard {

Variable Elementwise::forward(const Variable& x, ForwardContext&) {
  switch (function_) {
    case ElementwiseFunction::kSqrt:
      return sqrt(x);
    case ElementwiseFunction::kExp:
      return exp(x);
    case ElementwiseFunction::kLog:
      return log(x);
    case ElementwiseFunction::kAbs:
      return abs(x);
    case ElementwiseFunction::kErf:
      return erf(x);
    case ElementwiseFunction::kTanh:
      return tanh(x);
    case ElementwiseFunction::kPow:
      break;
  }
  return pow(x, exponent_);
}

std::string Elementwise::type_name() const {
  switch (function_) {
    case ElementwiseFunction::kSqrt:
      return "Sqrt";
    case ElementwiseFunction::kExp:
      return "Exp";
    case ElementwiseFunction::kLog:
      return "Log";
    case ElementwiseFunction::kAbs:
      return "Abs";
    case ElementwiseFunction::kErf:
      return "Erf";
    case ElementwiseFunction::kTanh:
      return "Tanh";
    case ElementwiseFunction::kPow:
      break;
  }
  return "Pow";
}

std::string Elementwise::description() const {
  return function_ == ElementwiseFunction::kPow ? fmt::format("Pow({})", exponent_) : type_name();
}

Variable LogSoftmax::forward(const Variable& x, ForwardContext&) {
  const Variable centred = x - amax(x, {-1}, ReducedAxes::kKeep);
  return centred - log(sum(exp(centred), {-1}, ReducedAxes::kKeep));
}

}  // namespace steelyard
