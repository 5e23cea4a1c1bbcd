// Loops over [rows, channels] arrays: sums over rows in an order fixed by the shape, and maps.
//
// Several short rows are treated as one wide row, so that the inner loops are long enough to
// vectorise whatever the number of channels. Per-channel operands are repeated to match (`widen`).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cpu/parallel.h"

namespace steelyard::kernels {

// How rows are grouped: `repeat` rows make a wide row, `chunk_rows` rows one partial sum.
struct RowChunks {
  static constexpr std::int64_t kMinWidth = 128;
  static constexpr std::int64_t kChunkElements = 8192;  // 32 KiB of float: a second pass hits L1

  RowChunks(std::int64_t row_count, std::int64_t channel_count)
      : rows(row_count),
        channels(channel_count),
        repeat(std::max<std::int64_t>(1, kMinWidth / channel_count)) {
    const std::int64_t wide_rows = std::max<std::int64_t>(8, kChunkElements / width() / 8 * 8);
    chunk_rows = wide_rows * repeat;
  }

  std::int64_t width() const { return channels * repeat; }
  std::int64_t chunks() const { return (rows + chunk_rows - 1) / chunk_rows; }
  // Elements of a chunk.
  std::int64_t begin(std::int64_t chunk) const { return chunk * chunk_rows * channels; }
  std::int64_t end(std::int64_t chunk) const {
    return std::min(rows, (chunk + 1) * chunk_rows) * channels;
  }

  std::int64_t rows, channels, repeat, chunk_rows;
};

// A per-channel vector repeated to the width of a wide row.
template <typename T, typename Value>
std::vector<T> widen(const RowChunks& layout, const Value* values) {
  std::vector<T> wide(layout.width());
  for (std::int64_t i = 0; i < layout.width(); ++i) wide[i] = T(values[i % layout.channels]);
  return wide;
}

// sums[n * width + c] += term(element, c)[n] over the elements [begin, end), c the column in the
// wide row. Eight rows are added in the term's own type before they reach the double.
template <std::size_t N, class Term>
void add_terms(std::int64_t begin, std::int64_t end, std::int64_t width, double* sums,
               Term&& term) {
  std::int64_t i = begin;
  for (; i + 8 * width <= end; i += 8 * width) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      const auto a = term(i + c, c), b = term(i + width + c, c);
      const auto d = term(i + 2 * width + c, c), e = term(i + 3 * width + c, c);
      const auto f = term(i + 4 * width + c, c), g = term(i + 5 * width + c, c);
      const auto h = term(i + 6 * width + c, c), k = term(i + 7 * width + c, c);
      for (std::size_t n = 0; n < N; ++n) {
        sums[n * width + c] +=
            double(((a[n] + b[n]) + (d[n] + e[n])) + ((f[n] + g[n]) + (h[n] + k[n])));
      }
    }
  }
  for (; i < end; i += width) {
    const std::int64_t length = std::min(width, end - i);
#pragma omp simd
    for (std::int64_t c = 0; c < length; ++c) {
      const auto a = term(i + c, c);
      for (std::size_t n = 0; n < N; ++n) sums[n * width + c] += double(a[n]);
    }
  }
}

// Adds the repeats of each of `count` wide rows of sums: folded[n * channels + c].
inline void fold_repeats(const RowChunks& layout, std::int64_t count, const double* wide,
                         double* folded) {
  std::fill_n(folded, count * layout.channels, 0.0);
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t i = 0; i < layout.width(); ++i) {
      folded[n * layout.channels + i % layout.channels] += wide[n * layout.width() + i];
    }
  }
}

// The N per-channel sums over all rows, [N * channels]: chunk by chunk, then in chunk order.
template <std::size_t N, class Term>
std::vector<double> row_sums(const RowChunks& layout, Term&& term) {
  const std::int64_t size = N * layout.channels;
  std::vector<double> partial(layout.chunks() * size);
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> wide(N * layout.width());
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      std::fill(wide.begin(), wide.end(), 0.0);
      add_terms<N>(layout.begin(chunk), layout.end(chunk), layout.width(), wide.data(), term);
      fold_repeats(layout, N, wide.data(), partial.data() + chunk * size);
    }
  });
  std::vector<double> sums(size);
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    for (std::int64_t i = 0; i < size; ++i) sums[i] += partial[chunk * size + i];
  }
  return sums;
}

// Calls body(element, c) on every element, c the column in the wide row.
template <class Body>
void map_rows(const RowChunks& layout, Body&& body) {
  const std::int64_t width = layout.width();
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t end = layout.end(last - 1);
    for (std::int64_t i = layout.begin(first); i < end; i += width) {
      const std::int64_t length = std::min(width, end - i);
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) body(i + c, c);
    }
  });
}

}  // namespace steelyard::kernels
