#include "steelyard/kernels/norm/norm.h"

#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Merges the moments of a column's lanes in halves into those of lane 0; needs 3 * kThreads doubles
// of shared memory. All threads of the block call it.
__device__ inline Moments merge_lanes(int width, Moments moments) {
  Moments* shared = shared_memory<Moments>();
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = moments;
  for (int half = kThreads / 2; half >= width; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] = merged(shared[thread], shared[thread + half]);
  }
  return shared[thread];
}

// Moments of every chunk, about its first row: deviations from a value of the same column do not
// cancel. Means lie at [chunk, column], then sums of squared deviations; the last block of a column
// merges them.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(RowChunks r, BatchMoments<T> k, double* partials, std::uint32_t* arrivals) {
  const RowsOfThread mine = rows_of_thread(r);
  double sums[3] = {};  // count, deviations, their squares
  double near = 0;
  if (mine.has_column && mine.first < mine.last) {
    near = static_cast<double>(k.x[mine.chunk * r.chunk_rows * r.columns + mine.column]);
    for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
      const double deviation = static_cast<double>(k.x[row * r.columns + mine.column]) - near;
      sums[0] += 1;
      sums[1] += deviation;
      sums[2] += deviation * deviation;
    }
  }
  add_lanes(r, sums);
  const bool has_sums = mine.lane == 0 && mine.has_column;
  const Moments of_chunk = moments_about(sums[0], near, sums[1], sums[2]);
  if (has_sums) {
    const std::int64_t at = mine.chunk * r.columns + mine.column;
    partials[at] = of_chunk.mean;
    partials[r.chunks * r.columns + at] = of_chunk.squares;
  }
  if (r.chunks == 1) {
    __syncthreads();  // until sums have been read
  } else if (!is_last_chunk(r, mine, arrivals)) {
    return;
  }
  Moments moments;
  if (mine.has_column) {
    for (std::int64_t chunk = mine.lane; chunk < r.chunks; chunk += r.lanes()) {
      const std::int64_t end = (chunk + 1) * r.chunk_rows;
      const std::int64_t rows = (end < r.rows ? end : r.rows) - chunk * r.chunk_rows;
      const std::int64_t at = chunk * r.columns + mine.column;
      moments = merged(
          moments, {static_cast<double>(rows), partials[at], partials[r.chunks * r.columns + at]});
    }
  }
  moments = merge_lanes(r.width, moments);
  if (!has_sums) return;
  k.mean[mine.column] = static_cast<T>(moments.mean);
  k.variance[mine.column] = static_cast<T>(moments.squares / static_cast<double>(r.rows));
}

template <typename T>
__global__ void __launch_bounds__(kThreads) normalize_kernel(RowChunks r, BatchNorm<T> k) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T centre = k.mean[mine.column];
  const T slope = k.inv_std[mine.column] * k.gamma[mine.column];
  const T offset = k.beta[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    k.y[i] = (k.x[i] - centre) * slope + offset;
  }
}

// The sums of grad_y and of grad_y * (x - mean).
template <typename T>
struct GradientTerm {
  BatchNormBackward<T> k;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t channel,
                             double (&sums)[2]) const {
    const std::int64_t i = row * k.channels + channel;
    sums[0] += static_cast<double>(k.grad_y[i]);
    sums[1] += static_cast<double>(k.grad_y[i] * (k.x[i] - k.mean[channel]));
  }
};

// shifts and factors are what backward_training_kernel subtracts.
template <typename T>
struct StoreParameterGradients {
  BatchNormBackward<T> k;
  T *shifts, *factors;

  __device__ void operator()(const RowChunks&, std::int64_t c, const double (&sums)[2]) const {
    const auto inverse = static_cast<double>(k.inv_std[c]);
    k.grad_beta[c] = static_cast<T>(sums[0]);
    k.grad_gamma[c] = static_cast<T>(sums[1] * inverse);
    if (!k.batch_statistics) return;
    const auto rows = static_cast<double>(k.rows);
    shifts[c] = static_cast<T>(sums[0] / rows);
    factors[c] = static_cast<T>(sums[1] / rows * inverse * inverse);
  }
};

// grad_x = slope * (grad_y - mean(grad_y) - xhat * mean(grad_y * xhat))
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_training_kernel(RowChunks r, BatchNormBackward<T> k, const T* shifts,
                             const T* factors) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T centre = k.mean[mine.column];
  const T slope = k.inv_std[mine.column] * k.gamma[mine.column];
  const T shift = shifts[mine.column];
  const T factor = factors[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    k.grad_x[i] = slope * ((k.grad_y[i] - shift) - (k.x[i] - centre) * factor);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_frozen_kernel(RowChunks r, BatchNormBackward<T> k) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T slope = k.inv_std[mine.column] * k.gamma[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    k.grad_x[i] = k.grad_y[i] * slope;
  }
}

// A grid in which each thread loops over its rows.
LaunchShape over_rows(const RowChunks& r) { return {r.blocks(), kThreads}; }

}  // namespace
}  // namespace cuda

template <typename T>
void compute(const CudaQueue& queue, const BatchMoments<T>& k) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, k.rows, k.channels);
  const cuda::Scratch<double> partials(queue, 2 * r.chunks * k.channels);
  cuda::launch(cuda::moments_kernel<T>,
               {r.blocks(), cuda::kThreads, cuda::kThreads * sizeof(Moments)},
               cuda::stream_of(queue), r, k, partials.data(), queue.arrivals);
}

template <typename T>
void compute(const CudaQueue& queue, const BatchNorm<T>& k) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, k.rows, k.channels);
  cuda::launch(cuda::normalize_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r, k);
}

template <typename T>
void compute(const CudaQueue& queue, const BatchNormBackward<T>& k) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, k.rows, k.channels);
  const std::int64_t kept = k.batch_statistics ? k.channels : 0;
  const cuda::Scratch<T> shifts(queue, kept), factors(queue, kept);
  cuda::sum_columns<2>(queue, r, cuda::GradientTerm<T>{k},
                       cuda::StoreParameterGradients<T>{k, shifts.data(), factors.data()});
  if (k.grad_x == nullptr) return;
  if (k.batch_statistics) {
    cuda::launch(cuda::backward_training_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r,
                 k, shifts.data(), factors.data());
  } else {
    cuda::launch(cuda::backward_frozen_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r, k);
  }
}

template struct CudaKernels<NormKernels>;

}  // namespace steelyard::kernels
