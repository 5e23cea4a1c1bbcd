// Pooling over windows of NHWC images.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/reductions/pool_geometry.h"  // IWYU pragma: export
#include "steelyard/kernels/pool/pool.h"

namespace steelyard {

// The sizes of max_pool2d(), whose windows have at most 65536 elements.
kernels::Conv2dShape max_pool2d_shape(const Shape& x, const Pool2dGeometry& geometry);

// y[N, OH, OW, C] = the maximum of each window; keeps two bytes per output for backward.
Variable max_pool2d(const Variable& x, const Pool2dGeometry& geometry);

// y[N, OH, OW, C] = the mean of each window; padded zeros count in the divisor unless
// count_include_pad is false.
Variable avg_pool2d(const Variable& x, const Pool2dGeometry& geometry,
                    bool count_include_pad = true);

// y[N, C] = the mean over the pixels of x[N, H, W, C].
Variable global_avg_pool(const Variable& x);

}  // namespace steelyard
