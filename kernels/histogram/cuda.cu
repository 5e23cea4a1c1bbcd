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

__device__ Count* counts_of(const ChannelHistograms& h, std::int64_t channel) {
  return reinterpret_cast<Count*>(h.counts) + channel * h.bins;
}

// Block b counts part b % parts of channel b / parts in its shared memory, then adds the counts
// that are not 0. They are integers, so the order does not matter.
__global__ void __launch_bounds__(kThreads) count_kernel(CountInHistograms k, std::int64_t parts) {
  const ChannelLayout& layout = k.layout;
  const auto bins = static_cast<std::int32_t>(k.histograms.bins);
  unsigned* table = cuda::shared_memory<unsigned>();
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b <= bins; b += kThreads) {
    table[b] = 0;
  }
  __syncthreads();
  const std::int64_t c = cuda::divide(blockIdx.x, parts);
  const float inverse = histogram_inverse_width(k.histograms.exponent[c]);
  const std::int64_t n = layout.outer * layout.inner;
  for (std::int64_t i = (blockIdx.x - c * parts) * kThreads + threadIdx.x; i < n;
       i += parts * kThreads) {
    atomicAdd(table + histogram_bin(k.x[layout.element(c, i)], inverse, bins), 1U);
  }
  __syncthreads();
  Count* counts = counts_of(k.histograms, c);
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b < bins; b += kThreads) {
    if (table[b] != 0) atomicAdd(counts + b, static_cast<Count>(table[b]));
  }
}

// For channels with fewer elements than bins.
__global__ void count_few_kernel(std::int64_t n, CountInHistograms k) {
  const std::int64_t i = cuda::element_index();
  if (i >= n) return;
  const std::int64_t plane = cuda::divide(i, k.layout.inner);
  const std::int64_t c = plane - cuda::divide(plane, k.layout.channels) * k.layout.channels;
  const auto bins = static_cast<std::int32_t>(k.histograms.bins);
  const float inverse = histogram_inverse_width(k.histograms.exponent[c]);
  const std::int32_t bin = histogram_bin(k.x[i], inverse, bins);
  if (bin < bins) atomicAdd(counts_of(k.histograms, c) + bin, Count{1});
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
  Count* above = counts_of(h, c) + half;
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

static void compute(const CudaQueue& queue, const GrowHistograms& k) {
  cuda::launch(grow_kernel, {k.histograms.channels, kThreads}, cuda::stream_of(queue), k);
}

static void compute(const CudaQueue& queue, const CountInHistograms& k) {
  const std::int64_t channels = k.histograms.channels;
  const std::int64_t bins = k.histograms.bins;
  const std::int64_t n = k.layout.outer * k.layout.inner;
  if (n < bins) return cuda::launch_elements(queue, count_few_kernel, k.layout.size(), k);
  if (bins > kMostSharedBins) {
    throw std::invalid_argument("[histogram] expected at most " + std::to_string(kMostSharedBins) +
                                " bins on a GPU, got " + std::to_string(bins));
  }
  if (channels == 0) return;
  const std::int64_t per_block = kThreads * kPerThread;
  const std::int64_t most = std::max<std::int64_t>(1, kMostBlocks / channels);
  const std::int64_t parts = std::min(most, (n + per_block - 1) / per_block);
  cuda::launch(count_kernel,
               {channels * parts, kThreads, static_cast<std::size_t>(bins + 1) * sizeof(unsigned)},
               cuda::stream_of(queue), k, parts);
}

template struct CudaKernels<HistogramKernels>;

}  // namespace steelyard::kernels
