// Dimensions in another order: NHWC and NCHW as batches of matrices, and any order.
#pragma once

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y [batch, columns, rows] of x [batch, rows, columns]. NHWC to NCHW has the pixels for rows and
// the channels for columns, NCHW to NHWC the other way round.
template <typename T>
struct Transpose {
  std::int64_t batch, rows, columns;
  const T* x;
  T* y;
};

// The sizes of up to kMostPermuted dimensions of the output, and how far apart their elements lie
// in the input. Dimensions that are not there have size 1.
inline constexpr int kMostPermuted = 6;
struct PermutedLayout {
  std::int64_t size[kMostPermuted];
  std::int64_t stride[kMostPermuted];
};

// y = x with its dimensions in another order; n elements.
template <typename T>
struct Permute {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  PermutedLayout layout;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE std::int64_t from(std::int64_t i) const {
    std::int64_t from = 0;
    for (int d = kMostPermuted - 1; d >= 0; --d) {
      const std::int64_t rest = divide(i, layout.size[d]);
      from += (i - rest * layout.size[d]) * layout.stride[d];
      i = rest;
    }
    return from;
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = x[from(i)]; }

  // Those of the last dimension lie equally far apart.
  static constexpr std::int64_t kTogether = 1 << 16;
  std::int64_t neighbours(std::int64_t i) const {
    const std::int64_t last = layout.size[kMostPermuted - 1];
    return last - i % last;
  }
  void together(std::int64_t i, std::int64_t count) const {
    const std::int64_t step = layout.stride[kMostPermuted - 1];
    const T* const source = x + from(i);
    T* const target = y + i;
    for (std::int64_t k = 0; k < count; ++k) target[k] = source[k * step];
  }
};

using TransposeKernels =
    JoinedKernels<ForTypes<Transpose, float, double, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<Permute, float, double, std::int8_t, std::uint8_t>>;

}  // namespace steelyard::kernels
