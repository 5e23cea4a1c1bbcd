// Rows along a dimension chosen by index: of a table, or of any tensor.
#pragma once

#include <cmath>

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// indices[i] = x[i] rounded, halves to even; -1 where that is no index.
template <typename T>
struct RoundToIndices {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  const T* x;
  std::int64_t* indices;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T whole = std::nearbyint(x[i]);
    const bool fits = whole >= T(0) && whole < T(std::int64_t{1} << 62);
    indices[i] = fits ? static_cast<std::int64_t>(whole) : -1;
  }
};

// y[o, i, :] = x[o, indices[i], :] of x[outer, extent, columns]. An index that is not in [0,
// extent), which callers refuse where they can see it, gives NaN and has no gradient.
template <typename T>
struct Gather {
  std::int64_t rows, columns;  // outer * count, the size of what an index stands for
  std::int64_t count, extent;
  const std::int64_t* indices;  // [count]
  const T* x;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t r, std::int64_t c) const {
    const std::int64_t outer = r / count;
    const std::int64_t at = indices[r - outer * count];
    const bool known = at >= 0 && at < extent;
    y[r * columns + c] = known ? x[(outer * extent + at) * columns + c] : static_cast<T>(NAN);
  }
};

// grad_x[o, at, :] = sums of grad_y[o, i, :] over the i with that index, in the order of i.
template <typename T>
struct GatherBackward {
  std::int64_t outer, count, width, extent;
  const std::int64_t* indices;  // [count]
  const T* grad_y;
  T* grad_x;
};

using EmbeddingKernels = ForFloats<RoundToIndices, Gather, GatherBackward>;

}  // namespace steelyard::kernels
