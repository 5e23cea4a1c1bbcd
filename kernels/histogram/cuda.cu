#include "steelyard/kernels/histogram/histogram.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/histogram/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::kThreads;
using Count = unsigned long long;

// The shared memory that a block has by default, in counters of 32 bits.
constexpr std::int64_t kMostSharedBins = 48 * 1024 / 4 - 1;
constexpr std::int64_t kMostBlocks = 1024;
constexpr std::int64_t kPerThread = 16;

// Counts in [channels, bins]. The width of a channel's bins is 2^exponent[channel], or where
// exponent is null given by `inverse_width`.
template <typename T>
struct Counting {
  ChannelLayout layout;
  const T* x;
  std::int32_t bins;
  const std::int32_t* exponent;
  T inverse_width;
  Count *counts, *non_finite;
};

// Block b counts part b % parts of channel b / parts in its shared memory, then adds the counts
// that are not 0. They are integers, so the order does not matter.
template <typename T>
__global__ void __launch_bounds__(kThreads) count_kernel(Counting<T> k, std::int64_t parts) {
  const ChannelLayout& layout = k.layout;
  const std::int32_t bins = k.bins;
  unsigned* table = cuda::shared_memory<unsigned>();
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b <= bins; b += kThreads) {
    table[b] = 0;
  }
  __syncthreads();
  const std::int64_t c = cuda::divide(blockIdx.x, parts);
  const T inverse =
      k.exponent == nullptr ? k.inverse_width : histogram_inverse_width<T>(k.exponent[c]);
  const std::int64_t n = layout.outer * layout.inner;
  for (std::int64_t i = (blockIdx.x - c * parts) * kThreads + threadIdx.x; i < n;
       i += parts * kThreads) {
    const std::int64_t outer = cuda::divide(i, layout.inner);
    const T value = k.x[(outer * layout.channels + c) * layout.inner + (i - outer * layout.inner)];
    atomicAdd(table + histogram_bin(value, inverse, bins), 1U);
  }
  __syncthreads();
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b < bins; b += kThreads) {
    if (table[b] != 0) atomicAdd(k.counts + c * bins + b, static_cast<Count>(table[b]));
  }
  if (threadIdx.x == 0 && k.non_finite != nullptr && table[bins] != 0) {
    atomicAdd(k.non_finite, static_cast<Count>(table[bins]));
  }
}

// For channels with fewer elements than bins.
__global__ void count_few_kernel(std::int64_t n, ChannelLayout layout, std::int32_t bins,
                                 const std::int32_t* exponent, const float* x, Count* counts) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t plane = cuda::divide(i, layout.inner);
  const std::int64_t c = plane - cuda::divide(plane, layout.channels) * layout.channels;
  const std::int32_t bin = histogram_bin(x[i], histogram_inverse_width<float>(exponent[c]), bins);
  if (bin < bins) atomicAdd(counts + c * bins + bin, Count{1});
}

template <typename T>
void count(const CudaQueue& queue, const Counting<T>& k) {
  if (k.bins > kMostSharedBins) {
    throw std::invalid_argument("[histogram] expected at most " + std::to_string(kMostSharedBins) +
                                " bins on a GPU, got " + std::to_string(k.bins));
  }
  const ChannelLayout& layout = k.layout;
  const std::int64_t n = layout.outer * layout.inner;
  if (n == 0 || layout.channels == 0) return;
  const std::int64_t per_block = kThreads * kPerThread;
  const std::int64_t most = std::max<std::int64_t>(1, kMostBlocks / layout.channels);
  const std::int64_t parts = std::min(most, (n + per_block - 1) / per_block);
  cuda::launch(
      count_kernel<T>,
      {layout.channels * parts, kThreads, static_cast<std::size_t>(k.bins + 1) * sizeof(unsigned)},
      cuda::stream_of(queue), k, parts);
}

// One block, one channel, kThreads bins of each side at a time, outwards from 0: all are read, at
// their own place or further out, before any is overwritten.
__global__ void __launch_bounds__(kThreads) grow_kernel(GrowHistograms k) {
  const ChannelHistograms& h = k.histograms;
  const std::int64_t c = blockIdx.x;
  float lo = h.lo[c];
  float hi = h.hi[c];
  const GridChange change =
      extend_histogram(lo, hi, h.exponent[c], k.step_lo[c], k.step_hi[c], h.bins);
  __syncthreads();  // until all have read
  if (threadIdx.x == 0) {
    h.lo[c] = lo;
    h.hi[c] = hi;
    h.exponent[c] = change.exponent;
  }
  if (change.doublings == 0) return;
  const std::int64_t half = h.bins / 2;
  Count* above = reinterpret_cast<Count*>(h.counts) + c * h.bins + half;
  Count* below = above - 1;
  for (std::int64_t first = 0; first < half; first += kThreads) {
    const std::int64_t bin = first + threadIdx.x;
    Count sum_above = 0;
    Count sum_below = 0;
    if (bin < half) {
      sum_above = merged_count(above, 1, half, change.doublings, bin);
      sum_below = merged_count(below, -1, half, change.doublings, bin);
    }
    __syncthreads();
    if (bin < half) {
      above[bin] = sum_above;
      below[-bin] = sum_below;
    }
  }
}

}  // namespace

template <typename T>
void compute(const CudaQueue& queue, const HistogramAccumulate<T>& k) {
  count<T>(queue, {.layout = ChannelLayout::per_tensor(k.n),
                   .x = k.x,
                   .bins = static_cast<std::int32_t>(k.grid.bins),
                   .exponent = nullptr,
                   .inverse_width = histogram_inverse_width<T>(k.grid.exponent),
                   .counts = reinterpret_cast<Count*>(k.counts),
                   .non_finite = reinterpret_cast<Count*>(k.non_finite)});
}

static void compute(const CudaQueue& queue, const GrowHistograms& k) {
  cuda::launch(grow_kernel, {k.histograms.channels, kThreads}, cuda::stream_of(queue), k);
}

static void compute(const CudaQueue& queue, const CountInHistograms& k) {
  const ChannelHistograms& h = k.histograms;
  Count* counts = reinterpret_cast<Count*>(h.counts);
  if (k.layout.outer * k.layout.inner < h.bins) {
    cuda::launch_elements(queue, count_few_kernel, k.layout.size(), k.layout,
                          static_cast<std::int32_t>(h.bins),
                          static_cast<const std::int32_t*>(h.exponent), k.x, counts);
    return;
  }
  count<float>(queue, {.layout = k.layout,
                       .x = k.x,
                       .bins = static_cast<std::int32_t>(h.bins),
                       .exponent = h.exponent,
                       .inverse_width = 0,
                       .counts = counts,
                       .non_finite = nullptr});
}

template struct CudaKernels<HistogramKernels>;

}  // namespace steelyard::kernels
