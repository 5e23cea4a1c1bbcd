// Max, average and global average pooling, NHWC. Shapes are per_channel().
#pragma once

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/pool/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y = maximum over each window (padding never wins; NaN wins, as in PyTorch); argmax (may be null)
// gets the winner's offset inside the window, kh * kernel_w + kw, the first of equals.
// T is float, double or that of quantized codes, whose max commutes with dequantization: int8_t,
// uint8_t or int32_t.
template <typename T>
struct MaxPool {
  Conv2dShape shape;
  const T* x;
  T* y;
  std::uint16_t* argmax;
};

// grad_x from the saved winners.
template <typename T>
struct MaxPoolBackward {
  Conv2dShape shape;
  const T* grad_y;
  const std::uint16_t* argmax;
  T* grad_x;
};

// y = mean over each window; padded zeros count in the divisor only if count_include_pad.
template <typename T>
struct AveragePool {
  Conv2dShape shape;
  bool count_include_pad;
  const T* x;
  T* y;
};
template <typename T>
struct AveragePoolBackward {
  Conv2dShape shape;
  bool count_include_pad;
  const T* grad_y;
  T* grad_x;
};

// y[N, C] = mean over the pixels of x[N, H*W, C].
template <typename T>
struct GlobalAveragePool {
  std::int64_t batch, pixels, channels;
  const T* x;
  T* y;
};
template <typename T>
struct GlobalAveragePoolBackward {
  std::int64_t rows, columns;  // batch * pixels, channels
  std::int64_t pixels;
  const T* grad_y;
  T* grad_x;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row, std::int64_t c) const {
    grad_x[row * columns + c] = grad_y[divide(row, pixels) * columns + c] * (T(1) / T(pixels));
  }
};

// sums[N, OH, OW, C] = sum over each window of (x - zero_point); padding counts as real zero.
// Code is int8_t, uint8_t or int32_t; nobody checks that the sums fit.
template <typename Code>
struct IntegerWindowSums {
  Conv2dShape shape;
  const Code* x;
  const std::int32_t* zero_point;
  std::int32_t* sums;
};

// sums[batch, columns] of x[batch, rows, columns], added in double, on a GPU.
template <typename T>
struct RowSums {
  std::int64_t batch, rows, columns;
  const T* x;
  T* sums;
};
using RowSumsKernels = ForFloats<RowSums>;  // which the CPU has not

using PoolKernels =
    JoinedKernels<ForFloats<MaxPool, MaxPoolBackward, AveragePool, AveragePoolBackward,
                            GlobalAveragePool, GlobalAveragePoolBackward>,
                  ForTypes<MaxPool, std::int8_t, std::uint8_t, std::int32_t>,
                  ForTypes<IntegerWindowSums, std::int8_t, std::uint8_t, std::int32_t>>;

}  // namespace steelyard::kernels
