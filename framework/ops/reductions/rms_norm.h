// Normalization by the root mean square of the last dimension.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// x / sqrt(mean of squares + eps) * gamma, for each row x[..., :]; gamma [C]. Keeps x and a number
// a row for backward. Source: Zhang and Sennrich, arXiv:1910.07467.
Variable rms_norm(const Variable& x, const Variable& gamma, double eps = 1e-5);

}  // namespace steelyard
