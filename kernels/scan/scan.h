// Running sums along rows.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y[row, c] = the sum of x[row, 0 ... c], added in double one after another and rounded for each
// element; without x[row, c] itself if `exclusive`, from the row's end if `reverse` (ONNX's
// CumSum). n = rows; y may alias x.
template <typename T>
struct CumulativeSum {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n, columns;
  bool exclusive, reverse;
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t row) const {
    double sum = 0;
    for (std::int64_t step = 0; step < columns; ++step) {
      const std::int64_t at = row * columns + (reverse ? columns - 1 - step : step);
      const auto term = static_cast<double>(x[at]);
      y[at] = static_cast<T>(exclusive ? sum : sum + term);
      sum += term;
    }
  }
};

using ScanKernels = ForFloats<CumulativeSum>;

}  // namespace steelyard::kernels
