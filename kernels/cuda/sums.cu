// Sums of kernels/elementwise.h: blocks leave parts, a second launch adds them.
#include "kernels/cuda/block_sum.h"
#include "kernels/cuda/column_sums.h"
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

struct ValueTerm {
  std::int64_t columns;

  template <typename T>
  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t column, const T* x,
                             const T*, const T*, const T*, double (&sums)[1]) const {
    sums[0] += static_cast<double>(x[row * columns + column]);
  }
};

}  // namespace

template <typename T>
void column_sums(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
                 T* sums) {
  cuda::sum_columns<1, T>(queue, cuda::make_row_chunks(1, rows, channels), ValueTerm{channels},
                          cuda::StoreSum<T>{sums}, x, nullptr, nullptr, nullptr);
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
