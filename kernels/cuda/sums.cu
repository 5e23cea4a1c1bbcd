// Sums of kernels/elementwise.h: blocks leave parts, a second launch adds them.
#include "kernels/cuda/block_sum.h"
#include "kernels/elementwise.h"
#include "kernels/elementwise_formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::kSumBlock;
using cuda::kThreads;
using cuda::launch;
using cuda::LaunchShape;
using cuda::Scratch;
using cuda::shared_memory;
using cuda::stream_of;

LaunchShape sum_shape(std::int64_t n) {
  return {.blocks = cuda::sum_blocks(n),
          .threads = kThreads,
          .shared_bytes = cuda::reduce_bytes(kThreads)};
}

// parts[block] = sum of term(i) over the block's elements of n.
template <typename Term>
__device__ void sum_block(std::int64_t n, double* parts, const Term& term) {
  const std::int64_t begin = blockIdx.x * kSumBlock;
  const std::int64_t end = begin + kSumBlock < n ? begin + kSumBlock : n;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kThreads) sum += term(i);
  sum = cuda::block_sum(sum, shared_memory<double>());
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <typename T>
__global__ void squared_error_kernel(std::int64_t n, const T* a, const T* b, double* parts,
                                     T* grad_a) {
  sum_block(n, parts, [=](std::int64_t i) {
    if (grad_a != nullptr) grad_a[i] = squared_error_slope(a[i], b[i], n);
    return squared_error(a[i], b[i]);
  });
}

template <typename T>
__global__ void huber_error_kernel(std::int64_t n, const T* a, const T* b, double delta,
                                   double* parts, T* grad_a) {
  sum_block(n, parts, [=](std::int64_t i) {
    if (grad_a != nullptr) grad_a[i] = huber_error_slope(a[i], b[i], delta, n);
    return huber_error(a[i], b[i], delta);
  });
}

// Counts up to 2^53 are exact in double.
template <typename T>
__global__ void non_finite_kernel(std::int64_t n, const T* x, double* parts) {
  sum_block(n, parts, [=](std::int64_t i) { return is_finite(x[i]) ? 0.0 : 1.0; });
}

// sums[part, c] over `part_rows` rows of each part. A block has kThreads / columns rows of
// `columns` channels at a time, columns a power of two of at most 32.
template <typename In, typename Out>
__global__ void column_sums_kernel(std::int64_t rows, std::int64_t channels, int columns,
                                   std::int64_t part_rows, const In* x, Out* sums) {
  double* shared = shared_memory<double>();
  const std::int64_t groups = (channels + columns - 1) / columns;
  const std::int64_t part = blockIdx.x / groups;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t c = (blockIdx.x - part * groups) * columns + thread % columns;
  const int lanes = kThreads / columns;
  const int lane = thread / columns;
  const std::int64_t begin = part * part_rows;
  const std::int64_t end = begin + part_rows < rows ? begin + part_rows : rows;
  double sum = 0;
  if (c < channels) {
    for (std::int64_t r = begin + lane; r < end; r += lanes) {
      sum += static_cast<double>(x[r * channels + c]);
    }
  }
  shared[thread] = sum;
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) shared[thread] += shared[thread + half * columns];
  }
  if (lane == 0 && c < channels) sums[part * channels + c] = static_cast<Out>(shared[thread]);
}

template <typename In, typename Out>
void launch_column_sums(const CudaQueue& queue, std::int64_t parts, std::int64_t rows,
                        std::int64_t channels, std::int64_t part_rows, const In* x, Out* sums) {
  int columns = 1;
  while (columns < 32 && columns < channels) columns *= 2;
  launch(column_sums_kernel<In, Out>,
         {.blocks = parts * ((channels + columns - 1) / columns),
          .threads = kThreads,
          .shared_bytes = kThreads * sizeof(double)},
         stream_of(queue), rows, channels, columns, part_rows, x, sums);
}

}  // namespace

template <typename T>
void column_sums(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
                 T* sums) {
  // Enough parts to fill a GPU, and few enough for one block to add a column's.
  constexpr std::int64_t kLeastRows = 256, kMostParts = 1024;
  const std::int64_t share = (rows + kMostParts - 1) / kMostParts;
  const std::int64_t part_rows = share < kLeastRows ? kLeastRows : share;
  const std::int64_t count = (rows + part_rows - 1) / part_rows;
  if (count <= 1) return launch_column_sums(queue, 1, rows, channels, part_rows, x, sums);
  const Scratch<double> parts(queue, count * channels);
  launch_column_sums(queue, count, rows, channels, part_rows, x, parts.data());
  launch_column_sums<double>(queue, 1, count, channels, count, parts.data(), sums);
}

template <typename T>
void mean_squared_error(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* mean,
                        T* grad_a) {
  const Scratch<double> parts(queue, cuda::sum_blocks(n));
  launch(squared_error_kernel<T>, sum_shape(n), stream_of(queue), n, a, b, parts.data(), grad_a);
  cuda::launch_total(queue, cuda::sum_blocks(n), parts.data(), static_cast<double>(n), 1.0, mean);
}

template <typename T>
void mean_huber_error(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, double delta,
                      T* mean, T* grad_a) {
  const Scratch<double> parts(queue, cuda::sum_blocks(n));
  launch(huber_error_kernel<T>, sum_shape(n), stream_of(queue), n, a, b, delta, parts.data(),
         grad_a);
  cuda::launch_total(queue, cuda::sum_blocks(n), parts.data(), static_cast<double>(n), 1.0, mean);
}

template <typename T>
void count_non_finite(const CudaQueue& queue, std::int64_t n, const T* x, std::int64_t* count) {
  const Scratch<double> parts(queue, cuda::sum_blocks(n));
  launch(non_finite_kernel<T>, sum_shape(n), stream_of(queue), n, x, parts.data());
  cuda::launch_total(queue, cuda::sum_blocks(n), parts.data(), 1.0, 1.0, count);
}

#define STEELYARD_INSTANTIATE(T)                                                                 \
  template void column_sums(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*);         \
  template void mean_squared_error(const CudaQueue&, std::int64_t, const T*, const T*, T*, T*);  \
  template void mean_huber_error(const CudaQueue&, std::int64_t, const T*, const T*, double, T*, \
                                 T*);                                                            \
  template void count_non_finite(const CudaQueue&, std::int64_t, const T*, std::int64_t*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
