// 2-D transposed convolution: the gradient of a convolution as an operation.
#pragma once

#include <array>

#include "steelyard/framework/ops/products/conv2d.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

// As PyTorch has it: `geometry` is that of the convolution whose gradient this is, output_padding
// adds rows and columns at the end, of which several sizes would give the same input.
struct ConvTranspose2dGeometry {
  Conv2dGeometry conv;
  std::array<std::int64_t, 2> output_padding{0, 0};  // less than the stride
  static constexpr auto fields() {
    return std::tuple_cat(
        fields_within(&ConvTranspose2dGeometry::conv),
        std::tuple(field("output_padding", &ConvTranspose2dGeometry::output_padding)));
  }
};

// The convolution whose gradient it is, which has y for its input and x for its output; checked.
kernels::Conv2dShape conv_transpose2d_shape(const Shape& x, const Shape& w,
                                            const ConvTranspose2dGeometry& geometry);

// y[N, OH, OW, O] of x[N, H, W, C] and w[C, O/groups, KH, KW], bias[O] may be undefined;
// OH = (H - 1) * stride - 2 * padding + dilation * (KH - 1) + output_padding + 1. Keeps x when w
// needs a gradient, and w when x does.
Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvTranspose2dGeometry& geometry = {});

}  // namespace steelyard
