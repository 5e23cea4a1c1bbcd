// The product of a transposed convolution, whose weights are [O, C/groups, KH, KW], by output
// channel, where the parameter is [C, O/groups, KH, KW].
#pragma once

#include <memory>

#include "steelyard/framework/ops/products/conv_transpose2d.h"
#include "steelyard/qat/forms/product.h"

namespace steelyard::qat {

// x [N, H, W, C].
std::shared_ptr<const Product> conv_transpose2d_product(const ConvTranspose2dGeometry& geometry);

// The weights [O, C/groups, KH, KW] of a parameter, or the parameter [C, O/groups, KH, KW] of
// weights.
Tensor swapped_channels(const Tensor& weight, std::int64_t groups);

}  // namespace steelyard::qat
