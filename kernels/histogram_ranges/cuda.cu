#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"

#include <algorithm>

#include "steelyard/kernels/cuda/block_search.h"
#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/histogram_ranges/clipping_divergence.h"
#include "steelyard/kernels/histogram_ranges/clipping_error.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kThreads;

// The three rows of sums of a channel.
constexpr int kRows = 3;

// The best result of a pass, for every thread of the block.
__device__ Least best_of(const ClippingErrors& errors, const Clippings& clippings, void* shared) {
  Least best;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < clippings.count();
       i += kThreads) {
    best.meet(errors.error(clippings.at(i)), i);
  }
  return cuda::block_least(best, shared);
}

// One block, one channel.
__global__ void __launch_bounds__(kThreads) least_error_kernel(LeastErrorRanges k, double* sums) {
  void* shared = cuda::shared_memory<double>();
  const ChannelHistograms& h = k.histograms;
  const std::int64_t c = blockIdx.x;
  const bool seen = h.lo[c] <= h.hi[c];
  if (!seen || (h.lo[c] == 0 && h.hi[c] == 0)) {
    if (threadIdx.x == 0) {
      k.lo[c] = seen ? 0.0 : INFINITY;
      k.hi[c] = seen ? 0.0 : -INFINITY;
    }
    return;
  }
  const auto bins = static_cast<std::int32_t>(h.bins);
  double* rows = sums + c * kRows * (bins + 1);
  const ClippingErrors errors(h, c, k.range, k.symmetric, rows);
  for (int power = 0; power < kRows; ++power) {
    cuda::block_prefix_sums(
        bins, [&](std::int32_t bin) { return errors.moment(bin, power); },
        rows + power * (bins + 1), shared);
  }
  const Clippings coarse = errors.coarse();
  const Least rough = best_of(errors, coarse, shared);
  Clipping best = coarse.at(rough.index);
  if (!k.symmetric) {
    const Clippings fine = errors.fine(coarse, best);
    const Least finest = best_of(errors, fine, shared);
    best = finest.value < rough.value ? fine.at(finest.index) : best;
  }
  if (threadIdx.x != 0) return;
  const RangeEnds ends = errors.range_of(best);
  k.lo[c] = ends.lo;
  k.hi[c] = ends.hi;
}

// One block, one channel.
__global__ void __launch_bounds__(kThreads)
    divergence_sums_kernel(LeastDivergenceRanges k, double* sums) {
  void* shared = cuda::shared_memory<double>();
  const ChannelHistograms& h = k.histograms;
  const std::int64_t c = blockIdx.x;
  if (!(h.lo[c] <= h.hi[c])) return;
  const DivergenceWindow window(h, c, k.range, k.symmetric);
  double* rows = sums + c * kRows * (h.bins + 1);
  for (int row = 0; row < kRows; ++row) {
    cuda::block_prefix_sums(
        window.bins(), [&](std::int32_t b) { return Divergences::term(window.count(b), row); },
        rows + row * (h.bins + 1), shared);
  }
}

// Block b looks at part b % parts of the thresholds of channel b / parts.
__global__ void __launch_bounds__(kThreads)
    divergence_kernel(LeastDivergenceRanges k, std::int64_t parts, const double* sums,
                      Least* least) {
  const ChannelHistograms& h = k.histograms;
  const std::int64_t c = cuda::divide(blockIdx.x, parts);
  if (!(h.lo[c] <= h.hi[c])) return;
  const DivergenceWindow window(h, c, k.range, k.symmetric);
  const Divergences divergences(sums + c * kRows * (h.bins + 1), h.bins + 1);
  const auto step = static_cast<std::int32_t>(parts * kThreads);
  Least best;
  for (auto i = static_cast<std::int32_t>((blockIdx.x - c * parts) * kThreads + threadIdx.x);
       i < window.widest(); i += step) {
    best.meet(window.divergence(divergences, i), i);
  }
  best = cuda::block_least(best, cuda::shared_memory<Least>());
  if (threadIdx.x == 0) least[blockIdx.x] = best;
}

__global__ void divergence_range_kernel(std::int64_t channels, LeastDivergenceRanges k,
                                        std::int64_t parts, const Least* least) {
  const ChannelHistograms& h = k.histograms;
  const std::int64_t c = element_index();
  if (c >= channels) return;
  RangeEnds ends{INFINITY, -INFINITY};
  if (h.lo[c] <= h.hi[c]) {
    Least best;
    for (std::int64_t p = 0; p < parts; ++p) {
      best.meet(least[c * parts + p].value, least[c * parts + p].index);
    }
    const DivergenceWindow window(h, c, k.range, k.symmetric);
    ends = window.range_of(window.reach(best.index));
  }
  k.lo[c] = ends.lo;
  k.hi[c] = ends.hi;
}

// Calls run(part of the kernel, sums) for as many channels at a time as have room for their sums in
// memory.
template <class K, typename Run>
void in_parts(const CudaQueue& queue, const K& k, const Run& run) {
  const ChannelHistograms& h = k.histograms;
  const std::int64_t sums_each = kRows * (h.bins + 1);
  const std::int64_t fit = queue.part_bytes / (sums_each * std::int64_t{sizeof(double)});
  const std::int64_t at_a_time =
      std::clamp<std::int64_t>(fit, 1, std::max<std::int64_t>(1, h.channels));
  const cuda::Scratch<double> sums(queue, at_a_time * sums_each);
  for (std::int64_t first = 0; first < h.channels; first += at_a_time) {
    K part = k;
    part.histograms = h.part(first, std::min(at_a_time, h.channels - first));
    part.lo += first;
    part.hi += first;
    run(part, sums.data());
  }
}

}  // namespace

static void compute(const CudaQueue& queue, const LeastErrorRanges& k) {
  in_parts(queue, k, [&](const LeastErrorRanges& part, double* sums) {
    const ChannelHistograms& h = part.histograms;
    cuda::launch(least_error_kernel, {h.channels, kThreads, cuda::search_bytes(h.bins)},
                 cuda::stream_of(queue), part, sums);
  });
}

static void compute(const CudaQueue& queue, const LeastDivergenceRanges& k) {
  // Enough blocks for a large GPU where there are few channels, a threshold for each thread at
  // most.
  constexpr std::int64_t kMostBlocks = 1024;
  const std::int64_t of_thresholds = (k.histograms.bins / 2 + kThreads - 1) / kThreads;
  const std::int64_t parts = std::clamp<std::int64_t>(
      kMostBlocks / std::max<std::int64_t>(1, k.histograms.channels), 1, of_thresholds);
  in_parts(queue, k, [&](const LeastDivergenceRanges& part, double* sums) {
    const cudaStream_t stream = cuda::stream_of(queue);
    const ChannelHistograms& h = part.histograms;
    const cuda::Scratch<Least> least(queue, h.channels * parts);
    cuda::launch(divergence_sums_kernel, {h.channels, kThreads, cuda::search_bytes(h.bins)}, stream,
                 part, sums);
    cuda::launch(divergence_kernel, {h.channels * parts, kThreads, cuda::search_bytes(0)}, stream,
                 part, parts, sums, least.data());
    cuda::launch_elements(queue, divergence_range_kernel, h.channels, part, parts, least.data());
  });
}

template struct CudaKernels<HistogramRangesKernels>;

}  // namespace steelyard::kernels
