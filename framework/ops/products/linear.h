// Fully connected map.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// y[..., out] = x[..., in] w[out, in]^T + bias[out]; `bias` may be undefined. The leading
// dimensions of x are treated as rows. Keeps x when w needs a gradient, and w when x does.
Variable linear(const Variable& x, const Variable& w, const Variable& bias);

}  // namespace steelyard
