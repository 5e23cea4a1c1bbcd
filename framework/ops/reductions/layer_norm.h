// Layer normalization over the last dimension.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

// (x - mean) / sqrt(variance + eps) * gamma + beta with the moments of each row x[..., :]; gamma
// and beta [C]. Keeps x and two numbers a row for backward. Source: Ba et al., arXiv:1607.06450.
Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    double eps = 1e-5);

}  // namespace steelyard
