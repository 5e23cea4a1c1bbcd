// Rectified linear units.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export

namespace steelyard {

// max(x, 0); NaN stays NaN. Keeps its output for backward.
Variable relu(const Variable& x);

// min(max(x, 0), 6). Source: Krizhevsky, "Convolutional Deep Belief Networks on CIFAR-10", 2010.
Variable relu6(const Variable& x);

// x within [lo, hi], either of which may be infinite; NaN stays NaN. Keeps its input for backward.
// Throws std::invalid_argument unless lo <= hi.
Variable clamp(const Variable& x, double lo, double hi);

}  // namespace steelyard
