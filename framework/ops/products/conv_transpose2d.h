// 2-D transposed convolution: the gradient of a convolution as an operation.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/products/conv_geometry.h"  // IWYU pragma: export

namespace steelyard {

// y[N, OH, OW, O] of x[N, H, W, C] and w[C, O/groups, KH, KW], bias[O] may be undefined;
// OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1. Keeps x when w
// needs a gradient, and w when x does.
Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvTranspose2dGeometry& geometry = {});

}  // namespace steelyard
