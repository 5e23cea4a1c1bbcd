// 2-D convolution (cross-correlation, as in PyTorch).
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/products/conv_geometry.h"  // IWYU pragma: export
#include "steelyard/kernels/conv/conv.h"

namespace steelyard {

// y[N, OH, OW, O] = conv(x[N, H, W, C], w[O, C/groups, KH, KW]) + bias[O]; `bias` may be undefined.
// Keeps x when w needs a gradient, and w when x does.
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias,
                const Conv2dGeometry& geometry = {});

}  // namespace steelyard
