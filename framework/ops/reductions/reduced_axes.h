// Reductions over axes, which several operations and their gradients need.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard::ops {

// Which axes of `shape` are named; negative ones count from the end. Throws std::invalid_argument,
// naming `op`, for an axis that is not there or is named twice.
std::vector<bool> marked_axes(const char* op, const Shape& shape,
                              const std::vector<std::int64_t>& axes);

// The shape with 1 for the axes that are marked, and that of the marked axes alone.
struct KeptAndReduced {
  Shape kept, reduced;
};
KeptAndReduced kept_and_reduced(const Shape& shape, const std::vector<bool>& marked);

// The sum of x over the axes that are marked, which keep size 1. Terms are added in double.
Tensor sum_over(const char* op, const Tensor& x, const std::vector<bool>& summed);

// The gradient of an operand of `shape` that was broadcast: summed over what was repeated.
Tensor summed_to(const char* op, const Tensor& grad, const Shape& shape);

}  // namespace steelyard::ops
