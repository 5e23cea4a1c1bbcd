// Pooling over windows of NHWC images.
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/kernels/pool/pool.h"

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
