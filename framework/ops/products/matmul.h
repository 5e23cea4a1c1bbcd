// Products of batches of matrices.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// y[..., m, n] = a[..., m, k] b[..., k, n], with the same leading dimensions; or b[k, n], the same
// matrix for all of them. Keeps each where the other needs a gradient.
Variable matmul(const Variable& a, const Variable& b);

}  // namespace steelyard
