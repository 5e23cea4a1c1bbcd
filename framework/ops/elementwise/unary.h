// Functions of each element; each keeps its input for backward. Outside of its domain a function
// gives NaN or an infinity. The slope of sqrt() at 0 is 0 (kernels/unary/unary.h says why).
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export
#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/unary/unary.h"

namespace steelyard {

inline constexpr OpNames<kernels::UnaryFunction> kUnaryNames[] = {
    {kernels::UnaryFunction::kSqrt, "sqrt", "Sqrt"},
    {kernels::UnaryFunction::kExp, "exp", "Exp"},
    {kernels::UnaryFunction::kLog, "log", "Log"},
    {kernels::UnaryFunction::kAbs, "abs", "Abs"},
    {kernels::UnaryFunction::kErf, "erf", "Erf"},
    {kernels::UnaryFunction::kTanh, "tanh", "Tanh"},
    {kernels::UnaryFunction::kSin, "sin", "Sin"},
    {kernels::UnaryFunction::kCos, "cos", "Cos"},
    {kernels::UnaryFunction::kSoftplus, "softplus", "Softplus"},
    {kernels::UnaryFunction::kElu, "elu", "Elu"},
    {kernels::UnaryFunction::kSign, "sign", "Sign"},
    {kernels::UnaryFunction::kFloor, "floor", "Floor"},
    {kernels::UnaryFunction::kCeil, "ceil", "Ceil"},
    {kernels::UnaryFunction::kRound, "round", "Round"},
    {kernels::UnaryFunction::kPower, "pow", "Pow"},
};
static_assert(has_every_value(kUnaryNames, kernels::UnaryFunction::kPower));

Variable sqrt(const Variable& x);
Variable exp(const Variable& x);
Variable log(const Variable& x);
// The slope at 0 is 0.
Variable abs(const Variable& x);
Variable erf(const Variable& x);
Variable tanh(const Variable& x);
Variable sin(const Variable& x);
Variable cos(const Variable& x);
// log(1 + exp(x)).
Variable softplus(const Variable& x);
// x, below 0 alpha * (exp(x) - 1).
Variable elu(const Variable& x, double alpha);
// Steps, whose slope is 0. round() takes halves to the even number.
Variable sign(const Variable& x);
Variable floor(const Variable& x);
Variable ceil(const Variable& x);
Variable round(const Variable& x);

// x to the power of a number.
Variable pow(const Variable& x, double exponent);

// Any of these; the parameter is the exponent of kPower, alpha of kElu.
Variable apply_unary(kernels::UnaryFunction function, const Variable& x, double parameter = 1);

}  // namespace steelyard
