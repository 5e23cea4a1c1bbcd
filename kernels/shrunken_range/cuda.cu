#include "steelyard/kernels/shrunken_range/shrunken_range.h"

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/quant_plan/quant_sums.h"
#include "steelyard/kernels/shrunken_range/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kFullWarp;
using cuda::kThreads;
using cuda::launch_elements;

constexpr int kWarps = kThreads / 32;
static_assert(kSumLanes == 32, "a warp sums a chunk");

// The grid of every candidate of every channel; scale 0 means that there is no such candidate.
__global__ void candidates_kernel(std::int64_t n, CodeRange range, bool symmetric, const float* lo,
                                  const float* hi, float* scale, std::int32_t* zero_point) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t c = i / kShrinkFactors;
  const int candidate = static_cast<int>(i - c * kShrinkFactors);
  scale[i] = 0;
  if (!is_candidate(lo[c], hi[c], candidate)) return;
  const auto qparams = qparams_of_candidate(lo[c], hi[c], candidate, range, symmetric);
  scale[i] = qparams.scale;
  zero_point[i] = qparams.zero_point;
}

__device__ double add_lanes(double sum) {
  for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(kFullWarp, sum, half);
  return sum;
}

// One block, one chunk of a channel, whose errors under all candidates are summed by warps:
// errors[channel][candidate][chunk].
__global__ void __launch_bounds__(kThreads)
    chunk_error_kernel(ChannelLayout layout, std::int64_t chunks, CodeRange range, const float* x,
                       const float* scale, const std::int32_t* zero_point, double* errors) {
  float* values = cuda::shared_memory<float>();
  const std::int64_t c = cuda::divide(blockIdx.x, chunks);
  const std::int64_t chunk = blockIdx.x - c * chunks;
  const std::int64_t size = layout.outer * layout.inner;
  const std::int64_t first = chunk * kSumChunk;
  const int count = static_cast<int>(size - first < kSumChunk ? size - first : kSumChunk);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    values[i] = summed_value(x[layout.element(c, first + i)]);
  }
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int k = static_cast<int>(threadIdx.x / 32); k < kShrinkFactors; k += kWarps) {
    const std::int64_t candidate = c * kShrinkFactors + k;
    if (scale[candidate] == 0) continue;
    const CodeGrid<float> grid = make_code_grid(range, scale[candidate], zero_point[candidate]);
    double sum = 0;
    for (int i = lane; i < count; i += kSumLanes) {
      sum += squared_difference(fake_quantize_value(values[i], grid), values[i]);
    }
    sum = add_lanes(sum);
    if (lane == 0) errors[candidate * chunks + chunk] = sum;
  }
}

// One warp, one candidate: the sum of its chunks, kTotalLanes of them at a time.
__global__ void __launch_bounds__(kThreads)
    total_error_kernel(std::int64_t candidates, std::int64_t chunks, const float* scale,
                       const double* errors, double* totals) {
  const std::int64_t candidate = element_index() / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (candidate >= candidates || scale[candidate] == 0) return;
  constexpr int kPerThread = kTotalLanes / 32;
  double sums[kPerThread] = {};
  const double* mine = errors + candidate * chunks;
  for (std::int64_t first = 0; first < chunks; first += kTotalLanes) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t chunk = first + i * 32 + lane;
      if (chunk < chunks) sums[i] += mine[chunk];
    }
  }
#pragma unroll
  for (int half = kPerThread / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  const double total = add_lanes(sums[0]);
  if (lane == 0) totals[candidate] = total;
}

__global__ void best_kernel(std::int64_t n, const float* scale, const double* totals,
                            const float* lo, const float* hi, float* best_lo, float* best_hi) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  int best = 0;
  for (int k = 1; k < kShrinkFactors; ++k) {
    const std::int64_t candidate = c * kShrinkFactors + k;
    if (scale[candidate] == 0) break;
    if (totals[candidate] < totals[c * kShrinkFactors + best]) best = k;
  }
  const bool seen = is_candidate(lo[c], hi[c], 0);
  best_lo[c] = seen ? shrunken_end(lo[c], best) : lo[c];
  best_hi[c] = seen ? shrunken_end(hi[c], best) : hi[c];
}

}  // namespace

static void compute(const CudaQueue& queue, const LeastErrorShrinkings& k) {
  const std::int64_t candidates = k.layout.channels * kShrinkFactors;
  const std::int64_t chunks = (k.layout.outer * k.layout.inner + kSumChunk - 1) / kSumChunk;
  const cuda::Scratch<float> scale(queue, candidates);
  const cuda::Scratch<std::int32_t> zero_point(queue, candidates);
  const cuda::Scratch<double> errors(queue, candidates * chunks);
  const cuda::Scratch<double> totals(queue, candidates);
  launch_elements(queue, candidates_kernel, candidates, k.range, k.symmetric, k.lo, k.hi,
                  scale.data(), zero_point.data());
  cuda::launch(chunk_error_kernel,
               {k.layout.channels * chunks, kThreads, kSumChunk * sizeof(float)},
               cuda::stream_of(queue), k.layout, chunks, k.range, k.x,
               static_cast<const float*>(scale.data()),
               static_cast<const std::int32_t*>(zero_point.data()), errors.data());
  cuda::launch(total_error_kernel, {(candidates + kWarps - 1) / kWarps, kThreads},
               cuda::stream_of(queue), candidates, chunks, static_cast<const float*>(scale.data()),
               static_cast<const double*>(errors.data()), totals.data());
  launch_elements(queue, best_kernel, k.layout.channels, static_cast<const float*>(scale.data()),
                  static_cast<const double*>(totals.data()), k.lo, k.hi, k.best_lo, k.best_hi);
}

template struct CudaKernels<ShrunkenRangeKernels>;

}  // namespace steelyard::kernels
