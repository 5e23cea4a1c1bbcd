#include "kernels/layer_norm.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/column_sums.h"
#include "kernels/norm_formulas.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Several neighbouring threads share a row.
struct RowLanes {
  std::int64_t rows, columns;
  int lanes;  // of a row, a power of two

  std::int64_t blocks() const { return (rows + kThreads / lanes - 1) / (kThreads / lanes); }
};

RowLanes make_row_lanes(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kColumnsOfLane = 4;
  const auto wanted = static_cast<std::uint64_t>(columns / kColumnsOfLane);
  return {rows, columns,
          static_cast<int>(std::clamp<std::uint64_t>(std::bit_ceil(wanted), 1, kThreads))};
}

struct RowOfThread {
  std::int64_t row;
  int lane;
  bool has_row;
};

__device__ inline RowOfThread row_of_thread(const RowLanes& r) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / r.lanes) + thread / r.lanes;
  return {row, thread % r.lanes, row < r.rows};
}

// The sum over a row's lanes, for all of them, added in halves. All threads of the block call it.
__device__ inline double sum_of_row(const RowLanes& r, double value) {
  double* shared = shared_memory<double>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % r.lanes;
  shared[thread] = value;
  for (int half = r.lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) shared[thread] += shared[thread + half];
  }
  __syncthreads();
  const double sum = shared[thread - lane];
  __syncthreads();  // the next sum writes here
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(RowLanes r, const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean,
                   T* inv_std) {
  const RowOfThread mine = row_of_thread(r);
  const std::int64_t columns = mine.has_row ? r.columns : 0;
  const T* row = x + mine.row * r.columns;
  double sum = 0, squares = 0;
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) sum += static_cast<double>(row[c]);
  const double centre = sum_of_row(r, sum) / static_cast<double>(r.columns);
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double deviation = static_cast<double>(row[c]) - centre;
    squares += deviation * deviation;
  }
  const double variance = sum_of_row(r, squares) / static_cast<double>(r.columns);
  const T m = static_cast<T>(centre);
  const T inverse = static_cast<T>(inverse_std_of(variance, eps));
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    y[mine.row * r.columns + c] = (row[c] - m) * inverse * gamma[c] + beta[c];
  }
  if (mine.lane != 0 || !mine.has_row) return;
  mean[mine.row] = m;
  inv_std[mine.row] = inverse;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(RowLanes r, const T* x, const T* grad_y, const T* mean, const T* inv_std,
                    const T* gamma, T* grad_x) {
  const RowOfThread mine = row_of_thread(r);
  const std::int64_t columns = mine.has_row ? r.columns : 0;
  const T m = mine.has_row ? mean[mine.row] : T(0);
  const T inverse = mine.has_row ? inv_std[mine.row] : T(0);
  const std::int64_t first = mine.row * r.columns;
  double sum = 0, projected = 0;  // of the gradient of the normalised row, and along that row
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double g = static_cast<double>(grad_y[first + c]) * static_cast<double>(gamma[c]);
    sum += g;
    projected += g * static_cast<double>((x[first + c] - m) * inverse);
  }
  sum = sum_of_row(r, sum);
  projected = sum_of_row(r, projected);
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double g = static_cast<double>(grad_y[first + c]) * static_cast<double>(gamma[c]);
    const auto normalised = static_cast<double>((x[first + c] - m) * inverse);
    const double centred = g - (sum + normalised * projected) / static_cast<double>(r.columns);
    grad_x[first + c] = static_cast<T>(centred * static_cast<double>(inverse));
  }
}

// The sums of grad_y * (x - mean) * inv_std and of grad_y.
template <typename T>
struct ParameterTerm {
  std::int64_t columns;
  const T *x, *grad_y, *mean, *inv_std;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t column,
                             double (&sums)[2]) const {
    const std::int64_t i = row * columns + column;
    sums[0] += static_cast<double>(grad_y[i] * ((x[i] - mean[row]) * inv_std[row]));
    sums[1] += static_cast<double>(grad_y[i]);
  }
};

// Either may be null.
template <typename T>
struct StoreParameterGradients {
  T* grad_gamma;
  T* grad_beta;

  __device__ void operator()(const RowChunks&, std::int64_t c, const double (&sums)[2]) const {
    if (grad_gamma != nullptr) grad_gamma[c] = static_cast<T>(sums[0]);
    if (grad_beta != nullptr) grad_beta[c] = static_cast<T>(sums[1]);
  }
};

constexpr std::size_t kSharedBytes = kThreads * sizeof(double);

}  // namespace
}  // namespace cuda

template <typename T>
void layer_norm_forward(const CudaQueue& queue, std::int64_t rows, std::int64_t columns, const T* x,
                        const T* gamma, const T* beta, double eps, T* y, T* mean, T* inv_std) {
  const cuda::RowLanes r = cuda::make_row_lanes(rows, columns);
  cuda::launch(cuda::forward_kernel<T>, {r.blocks(), cuda::kThreads, cuda::kSharedBytes},
               cuda::stream_of(queue), r, x, gamma, beta, eps, y, mean, inv_std);
}

template <typename T>
void layer_norm_backward(const CudaQueue& queue, std::int64_t rows, std::int64_t columns,
                         const T* x, const T* grad_y, const T* mean, const T* inv_std,
                         const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta) {
  if (grad_gamma != nullptr || grad_beta != nullptr) {
    cuda::sum_columns<2>(queue, cuda::make_row_chunks(1, rows, columns),
                         cuda::ParameterTerm<T>{columns, x, grad_y, mean, inv_std},
                         cuda::StoreParameterGradients<T>{grad_gamma, grad_beta});
  }
  if (grad_x == nullptr) return;
  const cuda::RowLanes r = cuda::make_row_lanes(rows, columns);
  cuda::launch(cuda::backward_kernel<T>, {r.blocks(), cuda::kThreads, cuda::kSharedBytes},
               cuda::stream_of(queue), r, x, grad_y, mean, inv_std, gamma, grad_x);
}

#define STEELYARD_INSTANTIATE(T)                                                            \
  template void layer_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*,  \
                                   const T*, const T*, double, T*, T*, T*);                 \
  template void layer_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*, \
                                    const T*, const T*, const T*, const T*, T*, T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
