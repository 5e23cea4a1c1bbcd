// The geometry of pooling and the sizes that it gives.
#pragma once

#include <array>
#include <cstdint>
#include <tuple>

#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/windows.h"

namespace steelyard {

// A pooling window; pairs are {height, width}. Padding is at most half the kernel, as in PyTorch.
struct Pool2dGeometry {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};
  bool operator==(const Pool2dGeometry&) const = default;
  static constexpr auto fields() {
    return std::tuple(field("kernel", &Pool2dGeometry::kernel),
                      field("stride", &Pool2dGeometry::stride),
                      field("padding", &Pool2dGeometry::padding));
  }
};

// An average over windows.
struct AveragePool2d {
  Pool2dGeometry geometry;
  bool count_include_pad = true;  // padded zeros count in the divisor
};

// The sizes of pooling [N, H, W, C]. Throws std::invalid_argument, naming `op`, on a geometry that
// does not fit.
kernels::Conv2dShape pool2d_shape(const char* op, const Shape& x, const Pool2dGeometry& geometry);

}  // namespace steelyard
