// Dimensions in another order: NHWC and NCHW as batches of matrices, and any order.
#pragma once

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

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    std::int64_t rest = i, from = 0;
    for (int d = kMostPermuted - 1; d >= 0; --d) {
      from += rest % layout.size[d] * layout.stride[d];
      rest /= layout.size[d];
    }
    y[i] = x[from];
  }
};

using TransposeKernels =
    JoinedKernels<ForTypes<Transpose, float, double, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<Permute, float, double, std::int8_t, std::uint8_t>>;

}  // namespace steelyard::kernels
