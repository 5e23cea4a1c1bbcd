#include "steelyard/kernels/layer_norm/layer_norm.h"

#include <algorithm>
#include <bit>

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/norm/formulas.h"

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
__global__ void __launch_bounds__(kThreads) forward_kernel(RowLanes r, LayerNorm<T> k) {
  const RowOfThread mine = row_of_thread(r);
  const std::int64_t columns = mine.has_row ? r.columns : 0;
  const T* row = k.x + mine.row * r.columns;
  double sum = 0, squares = 0;
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) sum += static_cast<double>(row[c]);
  const double centre = sum_of_row(r, sum) / static_cast<double>(r.columns);
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double deviation = static_cast<double>(row[c]) - centre;
    squares += deviation * deviation;
  }
  const double variance = sum_of_row(r, squares) / static_cast<double>(r.columns);
  const T m = static_cast<T>(centre);
  const T inverse = static_cast<T>(inverse_std_of(variance, k.eps));
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    k.y[mine.row * r.columns + c] = (row[c] - m) * inverse * k.gamma[c] + k.beta[c];
  }
  if (mine.lane != 0 || !mine.has_row) return;
  k.mean[mine.row] = m;
  k.inv_std[mine.row] = inverse;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) backward_kernel(RowLanes r, LayerNormBackward<T> k) {
  const RowOfThread mine = row_of_thread(r);
  const std::int64_t columns = mine.has_row ? r.columns : 0;
  const T m = mine.has_row ? k.mean[mine.row] : T(0);
  const T inverse = mine.has_row ? k.inv_std[mine.row] : T(0);
  const std::int64_t first = mine.row * r.columns;
  double sum = 0, projected = 0;  // of the gradient of the normalized row, and along that row
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double g = static_cast<double>(k.grad_y[first + c]) * static_cast<double>(k.gamma[c]);
    sum += g;
    projected += g * static_cast<double>((k.x[first + c] - m) * inverse);
  }
  sum = sum_of_row(r, sum);
  projected = sum_of_row(r, projected);
  for (std::int64_t c = mine.lane; c < columns; c += r.lanes) {
    const double g = static_cast<double>(k.grad_y[first + c]) * static_cast<double>(k.gamma[c]);
    const auto normalized = static_cast<double>((k.x[first + c] - m) * inverse);
    const double centred = g - (sum + normalized * projected) / static_cast<double>(r.columns);
    k.grad_x[first + c] = static_cast<T>(centred * static_cast<double>(inverse));
  }
}

// The sums of grad_y * (x - mean) * inv_std and of grad_y.
template <typename T>
struct ParameterTerm {
  LayerNormBackward<T> k;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t column,
                             double (&sums)[2]) const {
    const std::int64_t i = row * k.columns + column;
    sums[0] += static_cast<double>(k.grad_y[i] * ((k.x[i] - k.mean[row]) * k.inv_std[row]));
    sums[1] += static_cast<double>(k.grad_y[i]);
  }
};

// Either may be null.
template <typename T>
struct StoreParameterGradients {
  T *grad_gamma, *grad_beta;

  __device__ void operator()(const RowChunks&, std::int64_t c, const double (&sums)[2]) const {
    if (grad_gamma != nullptr) grad_gamma[c] = static_cast<T>(sums[0]);
    if (grad_beta != nullptr) grad_beta[c] = static_cast<T>(sums[1]);
  }
};

LaunchShape shape_of(const RowLanes& r) {
  return {r.blocks(), kThreads, kThreads * sizeof(double)};
}

}  // namespace
}  // namespace cuda

template <typename T>
void compute(const CudaQueue& queue, const LayerNorm<T>& k) {
  const cuda::RowLanes r = cuda::make_row_lanes(k.rows, k.columns);
  cuda::launch(cuda::forward_kernel<T>, cuda::shape_of(r), cuda::stream_of(queue), r, k);
}

template <typename T>
void compute(const CudaQueue& queue, const LayerNormBackward<T>& k) {
  if (k.grad_gamma != nullptr || k.grad_beta != nullptr) {
    cuda::sum_columns<2>(queue, cuda::make_row_chunks(1, k.rows, k.columns),
                         cuda::ParameterTerm<T>{k},
                         cuda::StoreParameterGradients<T>{k.grad_gamma, k.grad_beta});
  }
  if (k.grad_x == nullptr) return;
  const cuda::RowLanes r = cuda::make_row_lanes(k.rows, k.columns);
  cuda::launch(cuda::backward_kernel<T>, cuda::shape_of(r), cuda::stream_of(queue), r, k);
}

template struct CudaKernels<LayerNormKernels>;

}  // namespace steelyard::kernels
