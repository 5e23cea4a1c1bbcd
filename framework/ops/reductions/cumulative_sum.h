// Running sums.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"

namespace steelyard {

// y[..., c] = the sum of x[..., 0 ... c] along the last dimension, accumulated in double. Throws
// std::invalid_argument for x [].
Variable cumulative_sum(const Variable& x, const CumulativeSumOptions& options = {});

}  // namespace steelyard
