// Loops over [rows, channels] arrays: sums over rows in an order fixed by the shape, and maps.
//
// Several short rows are treated as one wide row, so that the inner loops are long enough to
// vectorize whatever the number of channels. Per-channel operands are repeated to match (`widen`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/parallel.h"

namespace steelyard::kernels {

// How rows are grouped: `repeat` rows make a wide row, `chunk_rows` rows one partial sum.
struct RowChunks {
  static constexpr std::int64_t kMinWidth = 128;
  static constexpr std::int64_t kChunkElements = 8192;
  static constexpr std::int64_t kPartElements = 2048;  // a second pass hits the first-level cache

  RowChunks(std::int64_t row_count, std::int64_t channel_count)
      : rows(row_count),
        channels(channel_count),
        repeat(std::max<std::int64_t>(1, kMinWidth / channel_count)) {
    const std::int64_t wide_rows = std::max<std::int64_t>(8, kChunkElements / width() / 8 * 8);
    chunk_rows = wide_rows * repeat;
  }

  std::int64_t width() const { return channels * repeat; }
  // Elements of a part of a chunk, which may be added on its own without any other rounding.
  std::int64_t part() const {
    const std::int64_t eight_rows = 8 * width();
    return std::max(eight_rows, kPartElements / eight_rows * eight_rows);
  }
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

// term(i, c) over eight wide rows, added in the term's own type.
template <class Term>
double sum_of_eight(const Term& term, std::int64_t i, std::int64_t c, std::int64_t width) {
  const auto low = (term(i + c, c) + term(i + width + c, c)) +
                   (term(i + 2 * width + c, c) + term(i + 3 * width + c, c));
  const auto high = (term(i + 4 * width + c, c) + term(i + 5 * width + c, c)) +
                    (term(i + 6 * width + c, c) + term(i + 7 * width + c, c));
  return double(low + high);
}

// sums[n * width + c] += terms[n](element, c) over the elements [begin, end), c the column in the
// wide row. Eight rows are added in the term's own type before they reach the double.
template <class... Terms>
void add_terms(std::int64_t begin, std::int64_t end, std::int64_t width, double* sums,
               const Terms&... terms) {
  if (width == 0) return;
  std::int64_t i = begin;
  for (; i + 8 * width <= end; i += 8 * width) {
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      std::int64_t n = 0;
      ((sums[n++ * width + c] += sum_of_eight(terms, i, c, width)), ...);
    }
  }
  for (; i < end; i += width) {
    const std::int64_t length = std::min(width, end - i);
#pragma omp simd
    for (std::int64_t c = 0; c < length; ++c) {
      std::int64_t n = 0;
      ((sums[n++ * width + c] += double(terms(i + c, c))), ...);
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

// The per-channel sums of kTerms terms over all rows, [terms * channels]: chunk by chunk, then in
// chunk order. terms_of(begin, end) gives a tuple of the terms of the elements [begin, end), some
// of a chunk's, which begin at a multiple of 8.
template <std::int64_t kTerms, class TermsOf>
KeptVector<double> chunked_row_sums(const RowChunks& layout, const TermsOf& terms_of) {
  const std::int64_t size = kTerms * layout.channels;
  KeptVector<double> partial(layout.chunks() * size, 0.0);
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    KeptVector<double> wide(kTerms * layout.width(), 0.0);
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      std::fill(wide.begin(), wide.end(), 0.0);
      const std::int64_t chunk_end = layout.end(chunk);
      for (std::int64_t begin = layout.begin(chunk); begin < chunk_end; begin += layout.part()) {
        const std::int64_t end = std::min(chunk_end, begin + layout.part());
        std::apply(
            [&](const auto&... terms) {
              add_terms(begin, end, layout.width(), wide.data(), terms...);
            },
            terms_of(begin, end));
      }
      fold_repeats(layout, kTerms, wide.data(), partial.data() + chunk * size);
    }
  });
  KeptVector<double> sums(size, 0.0);
  for (std::int64_t chunk = 0; chunk < layout.chunks(); ++chunk) {
    for (std::int64_t i = 0; i < size; ++i) sums[i] += partial[chunk * size + i];
  }
  return sums;
}

template <class... Terms>
KeptVector<double> row_sums(const RowChunks& layout, const Terms&... terms) {
  return chunked_row_sums<sizeof...(Terms)>(
      layout, [&](std::int64_t, std::int64_t) { return std::tie(terms...); });
}

// Calls body(element, c) on every element, c the column in the wide row.
template <class Body>
void map_rows(const RowChunks& layout, const Body& body) {
  const std::int64_t width = layout.width();
  parallel_for(layout.chunks(), 2, [&](std::int64_t first, std::int64_t last) {
    const Body own = body;
    const std::int64_t end = layout.end(last - 1);
    for (std::int64_t i = layout.begin(first); i < end; i += width) {
      const std::int64_t length = std::min(width, end - i);
#pragma omp simd
      for (std::int64_t c = 0; c < length; ++c) own(i + c, c);
    }
  });
}

}  // namespace steelyard::kernels
