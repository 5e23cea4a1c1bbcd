#include "kernels/histogram.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/cuda/grid.h"
#include "kernels/histogram_bin.h"

namespace steelyard::kernels {
namespace {

using cuda::kThreads;

// What a block may have without asking for more, in counters of 32 bits.
constexpr std::int64_t kMostSharedBins = 48 * 1024 / 4 - 1;
constexpr std::int64_t kMostBlocks = 1024;
constexpr std::int64_t kPerThread = 16;

// Counts in the block's shared memory, then adds what is not 0: integers, so that no order shows.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    count_kernel(std::int64_t n, std::int32_t bins, T inverse_width, const T* x,
                 unsigned long long* counts, unsigned long long* non_finite) {
  unsigned* table = cuda::shared_memory<unsigned>();
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b <= bins; b += kThreads) {
    table[b] = 0;
  }
  __syncthreads();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = cuda::element_index(); i < n; i += step) {
    atomicAdd(table + histogram_bin(x[i], inverse_width, bins), 1U);
  }
  __syncthreads();
  for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b < bins; b += kThreads) {
    if (table[b] != 0) atomicAdd(counts + b, static_cast<unsigned long long>(table[b]));
  }
  if (threadIdx.x == 0 && non_finite != nullptr && table[bins] != 0) {
    atomicAdd(non_finite, static_cast<unsigned long long>(table[bins]));
  }
}

}  // namespace

template <typename T>
void histogram_accumulate(const CudaQueue& queue, const HistogramGrid& grid, std::int64_t n,
                          const T* x, std::uint64_t* counts, std::int64_t* non_finite) {
  if (grid.bins > kMostSharedBins) {
    throw std::invalid_argument("[histogram] expected at most " + std::to_string(kMostSharedBins) +
                                " bins on a GPU, got " + std::to_string(grid.bins));
  }
  const std::int64_t per_block = kThreads * kPerThread;
  cuda::launch(count_kernel<T>,
               {std::min(kMostBlocks, (n + per_block - 1) / per_block), kThreads,
                static_cast<std::size_t>(grid.bins + 1) * sizeof(unsigned)},
               cuda::stream_of(queue), n, static_cast<std::int32_t>(grid.bins),
               histogram_inverse_width<T>(grid), x, reinterpret_cast<unsigned long long*>(counts),
               reinterpret_cast<unsigned long long*>(non_finite));
}

template void histogram_accumulate(const CudaQueue&, const HistogramGrid&, std::int64_t,
                                   const float*, std::uint64_t*, std::int64_t*);
template void histogram_accumulate(const CudaQueue&, const HistogramGrid&, std::int64_t,
                                   const double*, std::uint64_t*, std::int64_t*);

}  // namespace steelyard::kernels
