// Arithmetic on variables: sums, differences, products, quotients, comparisons, choices,
// reductions.
//
// Operands have one dtype, f32 or f64, one device, and shapes that broadcast: axes are aligned at
// the last one, and an axis of size 1, or one that is missing, repeats (NumPy's rule). A number is
// an operand of rank 0. Throws std::invalid_argument, naming the operation and both shapes,
// otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// a + b of equal shapes, as a residual sum has them: anything else is an error there.
Variable add(const Variable& a, const Variable& b);
Variable broadcast_add(const Variable& a, const Variable& b);
Variable subtract(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
Variable divide(const Variable& a, const Variable& b);
// a / b, and 0 where b is 0, as the gradients are there.
Variable divide_no_nan(const Variable& a, const Variable& b);

inline Variable operator+(const Variable& a, const Variable& b) { return broadcast_add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return subtract(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return multiply(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return divide(a, b); }

// A number as a constant for arithmetic with `like`: its dtype, its device, rank 0.
Variable constant(double value, const Variable& like);

inline Variable operator+(const Variable& a, double b) { return broadcast_add(a, constant(b, a)); }
inline Variable operator-(const Variable& a, double b) { return subtract(a, constant(b, a)); }
inline Variable operator*(const Variable& a, double b) { return multiply(a, constant(b, a)); }
inline Variable operator/(const Variable& a, double b) { return divide(a, constant(b, a)); }
inline Variable operator+(double a, const Variable& b) { return broadcast_add(constant(a, b), b); }
inline Variable operator-(double a, const Variable& b) { return subtract(constant(a, b), b); }
inline Variable operator*(double a, const Variable& b) { return multiply(constant(a, b), b); }
inline Variable operator/(double a, const Variable& b) { return divide(constant(a, b), b); }
inline Variable operator-(const Variable& x) { return -1.0 * x; }

// Whether each pair of elements compares so, as a tensor of dtype bool; false where one is a NaN.
Tensor operator>(const Variable& a, const Variable& b);
Tensor operator>=(const Variable& a, const Variable& b);
inline Tensor operator<(const Variable& a, const Variable& b) { return b > a; }
inline Tensor operator<=(const Variable& a, const Variable& b) { return b >= a; }
inline Tensor operator>(const Variable& a, double b) { return a > constant(b, a); }
inline Tensor operator>=(const Variable& a, double b) { return a >= constant(b, a); }
inline Tensor operator<(const Variable& a, double b) { return constant(b, a) > a; }
inline Tensor operator<=(const Variable& a, double b) { return constant(b, a) >= a; }

// condition ? a : b for each element; `condition` is of dtype bool. A gradient reaches the operand
// that was chosen.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);
inline Variable where(const Tensor& condition, const Variable& a, double b) {
  return where(condition, a, constant(b, a));
}
inline Variable where(const Tensor& condition, double a, const Variable& b) {
  return where(condition, constant(a, b), b);
}

// Whether the axes that a reduction sums over stay, with size 1.
enum class ReducedAxes { kDrop, kKeep };

// Sums and means over all elements, as rank 0, or over some axes, which may be counted from the end
// (-1 is the last). Terms are added in double. Throws std::invalid_argument for an axis that is not
// there or is named twice, and for the mean of nothing.
Variable sum(const Variable& x);
Variable sum(const Variable& x, std::vector<std::int64_t> axes,
             ReducedAxes reduced = ReducedAxes::kDrop);
Variable mean(const Variable& x);
Variable mean(const Variable& x, const std::vector<std::int64_t>& axes,
              ReducedAxes reduced = ReducedAxes::kDrop);

}  // namespace steelyard
