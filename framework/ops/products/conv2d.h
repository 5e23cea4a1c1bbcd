// 2-D convolution (cross-correlation, as in PyTorch).
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/kernels/conv/conv.h"

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

// y[N, OH, OW, O] = conv(x[N, H, W, C], w[O, C/groups, KH, KW]) + bias[O]; `bias` may be undefined.
// Keeps x when w needs a gradient, and w when x does.
Variable conv2d(const Variable& x, const Variable& w, const Variable& bias,
                const Conv2dGeometry& geometry = {});

}  // namespace steelyard
