// The geometry of convolutions and the sizes that it gives.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/transposed_conv/transposed_conv.h"
#include "steelyard/kernels/windows.h"

namespace steelyard {

// The geometry of a convolution; pairs are {height, width}.
struct Conv2dGeometry {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};
  std::int64_t groups = 1;
  bool operator==(const Conv2dGeometry&) const = default;
  static constexpr auto fields() {
    return std::tuple(
        field("stride", &Conv2dGeometry::stride), field("padding", &Conv2dGeometry::padding),
        field("dilation", &Conv2dGeometry::dilation), field("groups", &Conv2dGeometry::groups));
  }
};

// The sizes of a convolution of input [N, H, W, C] with weight [O, C/groups, KH, KW]. Throws
// std::invalid_argument where they do not fit or the output would be empty.
kernels::Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dGeometry& geometry);

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

// How a product of integers computes the latter, of weights [O, C/groups, KH, KW]. Throws
// std::invalid_argument where they do not fit x.
kernels::TransposedConv transposed_conv(const Shape& x, const Shape& weight,
                                        const ConvTranspose2dGeometry& geometry);

}  // namespace steelyard
