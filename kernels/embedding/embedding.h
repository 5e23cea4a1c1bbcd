// Rows of a table chosen by index.
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

// y[i, :] = table[indices[i], :] of table[table_rows, width]. An index that is not in the table,
// which callers refuse where they can see it, gives a row of NaN and has no gradient.
template <typename T>
struct Embedding {
  std::int64_t rows, columns;  // indices, width
  std::int64_t table_rows;
  const std::int64_t* indices;
  const T* table;
  T* y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    const std::int64_t row = indices[i];
    const bool known = row >= 0 && row < table_rows;
    y[i * columns + c] = known ? table[row * columns + c] : static_cast<T>(NAN);
  }
};

// grad_table[table_rows, width] = sums of grad_y[i, :] over the i of each row, in the order of i.
template <typename T>
struct EmbeddingBackward {
  std::int64_t count, width, table_rows;
  const std::int64_t* indices;
  const T* grad_y;
  T* grad_table;
};

using EmbeddingKernels = ForFloats<RoundToIndices, Embedding, EmbeddingBackward>;

}  // namespace steelyard::kernels
