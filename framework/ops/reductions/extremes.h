// The larger and smaller of two operands, and the largest and smallest element along axes. A NaN
// wins.
//
// As PyTorch's maximum() and amax() do it, equal elements share the gradient evenly; a NaN gets 0,
// where PyTorch gives it a part.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/elementwise/arithmetic.h"

namespace steelyard {

// The larger and the smaller of each pair of elements, of shapes that broadcast.
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);

// Over axes, of which there is at least one; negative ones count from the end. Throws
// std::invalid_argument for an axis that is not there or is named twice, and where there is nothing
// along them.
Variable amax(const Variable& x, const std::vector<std::int64_t>& axes,
              ReducedAxes reduced = ReducedAxes::kDrop);
Variable amin(const Variable& x, const std::vector<std::int64_t>& axes,
              ReducedAxes reduced = ReducedAxes::kDrop);

}  // namespace steelyard
