#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"

#include <algorithm>

#include "steelyard/kernels/clipping_error.h"
#include "steelyard/kernels/cuda/block_search.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/divergence.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kThreads;

// The three rows of sums of a channel.
constexpr int kRows = 3;

// The best of a pass, for every thread of the block.
__device__ Least best_of(const ClippingErrors& errors, const Clippings& clippings, void* shared) {
  Least best;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < clippings.count();
       i += kThreads) {
    best.meet(errors.error(clippings.at(i)), i);
  }
  return cuda::block_least(best, shared);
}

// One block, one channel.
__global__ void __launch_bounds__(kThreads)
    least_error_kernel(std::int32_t bins, const std::int64_t* counts, const std::int32_t* exponent,
                       const float* low, const float* high, CodeRange range, bool symmetric,
                       double* sums, double* lo, double* hi) {
  void* shared = cuda::shared_memory<double>();
  const std::int64_t c = blockIdx.x;
  const bool seen = low[c] <= high[c];
  if (!seen || (low[c] == 0 && high[c] == 0)) {
    if (threadIdx.x == 0) {
      lo[c] = seen ? 0.0 : INFINITY;
      hi[c] = seen ? 0.0 : -INFINITY;
    }
    return;
  }
  double* rows = sums + c * kRows * (bins + 1);
  const ClippingErrors errors(bins, exponent[c], low[c], high[c], range, symmetric, rows,
                              rows + (bins + 1), rows + 2 * (bins + 1));
  const std::int64_t* mine = counts + c * bins;
  for (int power = 0; power < kRows; ++power) {
    cuda::block_prefix_sums(
        bins, [&](std::int32_t bin) { return errors.moment(mine, bin, power); },
        rows + power * (bins + 1), shared);
  }
  const Clippings coarse = errors.coarse();
  const Least rough = best_of(errors, coarse, shared);
  Clipping best = coarse.at(rough.index);
  if (!symmetric) {
    const Clippings fine = errors.fine(coarse, best);
    const Least finest = best_of(errors, fine, shared);
    best = finest.value < rough.value ? fine.at(finest.index) : best;
  }
  if (threadIdx.x != 0) return;
  const RangeEnds ends = errors.range_of(best);
  lo[c] = ends.lo;
  hi[c] = ends.hi;
}

// One block, one channel.
__global__ void __launch_bounds__(kThreads)
    divergence_sums_kernel(std::int64_t bins, const std::int64_t* counts,
                           const std::int32_t* exponent, const float* low, const float* high,
                           CodeRange range, bool symmetric, double* sums) {
  void* shared = cuda::shared_memory<double>();
  const std::int64_t c = blockIdx.x;
  if (!(low[c] <= high[c])) return;
  const DivergenceWindow window(counts + c * bins, bins, exponent[c], low[c], high[c], range,
                                symmetric);
  double* rows = sums + c * kRows * (bins + 1);
  cuda::block_prefix_sums(
      window.bins(), [&](std::int32_t b) { return window.count(b); }, rows, shared);
  cuda::block_prefix_sums(
      window.bins(), [&](std::int32_t b) { return window.count(b) > 0 ? 1.0 : 0.0; },
      rows + (bins + 1), shared);
  cuda::block_prefix_sums(
      window.bins(), [&](std::int32_t b) { return n_log_n(window.count(b)); },
      rows + 2 * (bins + 1), shared);
}

// Block b looks at part b % parts of the thresholds of channel b / parts.
__global__ void __launch_bounds__(kThreads)
    divergence_kernel(std::int64_t bins, std::int64_t parts, const std::int64_t* counts,
                      const std::int32_t* exponent, const float* low, const float* high,
                      CodeRange range, bool symmetric, const double* sums, Least* least) {
  const std::int64_t c = cuda::divide(blockIdx.x, parts);
  if (!(low[c] <= high[c])) return;
  const DivergenceWindow window(counts + c * bins, bins, exponent[c], low[c], high[c], range,
                                symmetric);
  const double* rows = sums + c * kRows * (bins + 1);
  const Divergences divergences(rows, rows + (bins + 1), rows + 2 * (bins + 1));
  const auto step = static_cast<std::int32_t>(parts * kThreads);
  Least best;
  for (auto i = static_cast<std::int32_t>((blockIdx.x - c * parts) * kThreads + threadIdx.x);
       i < window.widest(); i += step) {
    best.meet(window.divergence(divergences, i), i);
  }
  best = cuda::block_least(best, cuda::shared_memory<Least>());
  if (threadIdx.x == 0) least[blockIdx.x] = best;
}

__global__ void divergence_range_kernel(std::int64_t channels, std::int64_t bins,
                                        std::int64_t parts, const std::int64_t* counts,
                                        const std::int32_t* exponent, const float* low,
                                        const float* high, CodeRange range, bool symmetric,
                                        const Least* least, double* lo, double* hi) {
  const std::int64_t c = element_index();
  if (c >= channels) return;
  RangeEnds ends{INFINITY, -INFINITY};
  if (low[c] <= high[c]) {
    Least best;
    for (std::int64_t p = 0; p < parts; ++p) {
      best.meet(least[c * parts + p].value, least[c * parts + p].index);
    }
    const DivergenceWindow window(counts + c * bins, bins, exponent[c], low[c], high[c], range,
                                  symmetric);
    ends = window.range_of(window.reach(best.index));
  }
  lo[c] = ends.lo;
  hi[c] = ends.hi;
}

// Calls run(part of the histograms, first channel, sums) for as many channels at a time as may have
// their sums in memory.
template <typename Run>
void in_parts(const CudaQueue& queue, const ChannelHistograms& h, const Run& run) {
  const std::int64_t sums_each = kRows * (h.bins + 1);
  const std::int64_t fit = queue.part_bytes / (sums_each * std::int64_t{sizeof(double)});
  const std::int64_t at_a_time =
      std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(1, h.channels));
  const cuda::Scratch<double> sums(queue, at_a_time * sums_each);
  for (std::int64_t first = 0; first < h.channels; first += at_a_time) {
    run(h.part(first, std::min(at_a_time, h.channels - first)), first, sums.data());
  }
}

}  // namespace

static void compute(const CudaQueue& queue, const LeastErrorRanges& k) {
  in_parts(queue, k.histograms, [&](const ChannelHistograms& h, std::int64_t first, double* sums) {
    cuda::launch(least_error_kernel, {h.channels, kThreads, cuda::search_bytes(h.bins)},
                 cuda::stream_of(queue), static_cast<std::int32_t>(h.bins),
                 static_cast<const std::int64_t*>(h.counts),
                 static_cast<const std::int32_t*>(h.exponent), static_cast<const float*>(h.lo),
                 static_cast<const float*>(h.hi), k.range, k.symmetric, sums, k.lo + first,
                 k.hi + first);
  });
}

static void compute(const CudaQueue& queue, const LeastDivergenceRanges& k) {
  // Enough blocks for a large GPU where there are few channels, a threshold for each thread at
  // most.
  constexpr std::int64_t kMostBlocks = 1024;
  const std::int64_t of_thresholds = (k.histograms.bins / 2 + kThreads - 1) / kThreads;
  const std::int64_t parts = std::clamp<std::int64_t>(
      kMostBlocks / std::max<std::int64_t>(1, k.histograms.channels), 1, of_thresholds);
  in_parts(queue, k.histograms, [&](const ChannelHistograms& h, std::int64_t first, double* sums) {
    const cudaStream_t stream = cuda::stream_of(queue);
    const std::int64_t* counts = h.counts;
    const std::int32_t* exponent = h.exponent;
    const float* low = h.lo;
    const float* high = h.hi;
    const cuda::Scratch<Least> least(queue, h.channels * parts);
    cuda::launch(divergence_sums_kernel, {h.channels, kThreads, cuda::search_bytes(h.bins)}, stream,
                 h.bins, counts, exponent, low, high, k.range, k.symmetric, sums);
    cuda::launch(divergence_kernel, {h.channels * parts, kThreads, cuda::search_bytes(0)}, stream,
                 h.bins, parts, counts, exponent, low, high, k.range, k.symmetric,
                 static_cast<const double*>(sums), least.data());
    cuda::launch(divergence_range_kernel, {(h.channels + kThreads - 1) / kThreads, kThreads},
                 stream, h.channels, h.bins, parts, counts, exponent, low, high, k.range,
                 k.symmetric, static_cast<const Least*>(least.data()), k.lo + first, k.hi + first);
  });
}

template struct CudaKernels<HistogramRangesKernels>;

}  // namespace steelyard::kernels
