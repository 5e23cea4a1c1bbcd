// NHWC and NCHW: batches of matrices that change rows for columns.
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

using TransposeKernels = ForTypes<Transpose, float, double, std::int8_t, std::uint8_t>;

}  // namespace steelyard::kernels
