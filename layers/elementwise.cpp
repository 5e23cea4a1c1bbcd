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
    case ElementwiseFunction::kSin:
      return sin(x);
    case ElementwiseFunction::kCos:
      return cos(x);
    case ElementwiseFunction::kSoftplus:
      return softplus(x);
    case ElementwiseFunction::kElu:
      return elu(x, parameter_);
    case ElementwiseFunction::kSign:
      return sign(x);
    case ElementwiseFunction::kFloor:
      return floor(x);
    case ElementwiseFunction::kCeil:
      return ceil(x);
    case ElementwiseFunction::kRound:
      return round(x);
    case ElementwiseFunction::kPow:
      break;
  }
  return pow(x, parameter_);
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
    case ElementwiseFunction::kSin:
      return "Sin";
    case ElementwiseFunction::kCos:
      return "Cos";
    case ElementwiseFunction::kSoftplus:
      return "Softplus";
    case ElementwiseFunction::kElu:
      return "Elu";
    case ElementwiseFunction::kSign:
      return "Sign";
    case ElementwiseFunction::kFloor:
      return "Floor";
    case ElementwiseFunction::kCeil:
      return "Ceil";
    case ElementwiseFunction::kRound:
      return "Round";
    case ElementwiseFunction::kPow:
      break;
  }
  return "Pow";
}

std::string Elementwise::description() const {
  const bool takes_number =
      function_ == ElementwiseFunction::kPow || function_ == ElementwiseFunction::kElu;
  return takes_number ? fmt::format("{}({})", type_name(), parameter_) : type_name();
}

Variable LogSoftmax::forward(const Variable& x, ForwardContext&) {
  const Variable centred = x - amax(x, {-1}, ReducedAxes::kKeep);
  return centred - log(sum(exp(centred), {-1}, ReducedAxes::kKeep));
}

}  // namespace steelyard
