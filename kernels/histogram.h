// Integer-counted histogram whose bin width is a power of two anchored at zero.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// Bins of width 2^exponent; bin b (0 <= b < bins, bins even) covers
// [(b - bins/2) * 2^exponent, (b + 1 - bins/2) * 2^exponent).
struct HistogramGrid {
  int exponent = 0;
  std::int64_t bins = 2048;
};

// The smallest exponent whose grid covers [-amax, amax] (amax finite, >= 0; 0 gives the smallest
// exponent that keeps the width a normal float).
int histogram_exponent(double amax, std::int64_t bins);

// Adds every finite element's bin to counts[bins]. Elements must fit the grid (the caller grows it
// first); *non_finite (may be null) grows by the elements that were skipped. T is float or double.
template <typename T>
void histogram_accumulate(const HistogramGrid& grid, std::int64_t n, const T* x,
                          std::uint64_t* counts, std::int64_t* non_finite);

// Doubles the bin width `doublings` times, merging pairs; total count is kept exactly.
void histogram_grow(std::int64_t bins, int doublings, std::uint64_t* counts);

// The same on a GPU.
template <typename T>
void histogram_accumulate(const CudaQueue& queue, const HistogramGrid& grid, std::int64_t n,
                          const T* x, std::uint64_t* counts, std::int64_t* non_finite);

}  // namespace steelyard::kernels
