#include "kernels/norm.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/norm_formulas.h"

namespace steelyard::kernels {
namespace cuda {
namespace {

// Lane 0's moments become those of its column's lanes, merged in halves; needs 3 * kThreads doubles
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
    moments_kernel(RowChunks r, const T* x, double* partials, std::uint32_t* arrivals, T* mean,
                   T* variance) {
  const RowsOfThread mine = rows_of_thread(r);
  double sums[3] = {};  // count, deviations, their squares
  double near = 0;
  if (mine.has_column && mine.first < mine.last) {
    near = static_cast<double>(x[mine.chunk * r.chunk_rows * r.columns + mine.column]);
    for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
      const double deviation = static_cast<double>(x[row * r.columns + mine.column]) - near;
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
  mean[mine.column] = static_cast<T>(moments.mean);
  variance[mine.column] = static_cast<T>(moments.squares / static_cast<double>(r.rows));
}

template <typename T>
__global__ void inverse_std_kernel(std::int64_t n, const T* variance, double eps, T* inv_std) {
  const std::int64_t i = element_index();
  if (i < n) inv_std[i] = static_cast<T>(inverse_std_of(static_cast<double>(variance[i]), eps));
}

template <typename T, typename R>
__global__ void move_running_kernel(std::int64_t n, double momentum, double factor, const T* mean,
                                    const T* variance, R* running_mean, R* running_variance) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  running_mean[i] = static_cast<R>(moved_statistic(static_cast<double>(running_mean[i]), momentum,
                                                   static_cast<double>(mean[i])));
  running_variance[i] =
      static_cast<R>(moved_statistic(static_cast<double>(running_variance[i]), momentum,
                                     static_cast<double>(variance[i]) * factor));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    normalise_kernel(RowChunks r, const T* x, const T* mean, const T* inv_std, const T* gamma,
                     const T* beta, T* y) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T centre = mean[mine.column];
  const T slope = inv_std[mine.column] * gamma[mine.column];
  const T offset = beta[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    y[i] = (x[i] - centre) * slope + offset;
  }
}

// The sums of grad_y and of grad_y * (x - mean).
template <typename T>
struct GradientTerm {
  std::int64_t channels;
  const T *x, *grad_y, *mean;

  __device__ void operator()(std::int64_t, std::int64_t row, std::int64_t channel,
                             double (&sums)[2]) const {
    const std::int64_t i = row * channels + channel;
    sums[0] += static_cast<double>(grad_y[i]);
    sums[1] += static_cast<double>(grad_y[i] * (x[i] - mean[channel]));
  }
};

// shifts and factors, what backward_training_kernel takes off, may be null.
template <typename T>
struct StoreParameterGradients {
  const T* inv_std;
  T* grad_gamma;
  T* grad_beta;
  T* shifts;
  T* factors;

  __device__ void operator()(const RowChunks& r, std::int64_t c, const double (&sums)[2]) const {
    const auto inverse = static_cast<double>(inv_std[c]);
    grad_beta[c] = static_cast<T>(sums[0]);
    grad_gamma[c] = static_cast<T>(sums[1] * inverse);
    if (shifts == nullptr) return;
    const auto rows = static_cast<double>(r.rows);
    shifts[c] = static_cast<T>(sums[0] / rows);
    factors[c] = static_cast<T>(sums[1] / rows * inverse * inverse);
  }
};

// grad_x = slope * (grad_y - mean(grad_y) - xhat * mean(grad_y * xhat))
template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_training_kernel(RowChunks r, const T* x, const T* grad_y, const T* mean,
                             const T* inv_std, const T* gamma, const T* shifts, const T* factors,
                             T* grad_x) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T centre = mean[mine.column];
  const T slope = inv_std[mine.column] * gamma[mine.column];
  const T shift = shifts[mine.column];
  const T factor = factors[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    grad_x[i] = slope * ((grad_y[i] - shift) - (x[i] - centre) * factor);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward_frozen_kernel(RowChunks r, const T* grad_y, const T* inv_std, const T* gamma,
                           T* grad_x) {
  const RowsOfThread mine = rows_of_thread(r);
  if (!mine.has_column) return;
  const T slope = inv_std[mine.column] * gamma[mine.column];
  for (std::int64_t row = mine.first; row < mine.last; row += r.lanes()) {
    const std::int64_t i = row * r.columns + mine.column;
    grad_x[i] = grad_y[i] * slope;
  }
}

template <typename T>
void parameter_gradients(const CudaQueue& queue, const RowChunks& r, const T* x, const T* grad_y,
                         const T* mean, const StoreParameterGradients<T>& to) {
  sum_columns<2>(queue, r, GradientTerm<T>{r.columns, x, grad_y, mean}, to);
}

// A grid whose threads go over their rows.
LaunchShape over_rows(const RowChunks& r) { return {r.blocks(), kThreads}; }

}  // namespace
}  // namespace cuda

template <typename T>
void batch_moments(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
                   T* mean, T* variance) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, rows, channels);
  const cuda::Scratch<double> partials(queue, 2 * r.chunks * channels);
  cuda::launch(cuda::moments_kernel<T>,
               {r.blocks(), cuda::kThreads, cuda::kThreads * sizeof(Moments)},
               cuda::stream_of(queue), r, x, partials.data(), queue.arrivals, mean, variance);
}

template <typename T>
void inverse_std(const CudaQueue& queue, std::int64_t channels, const T* variance, double eps,
                 T* inv_std) {
  cuda::launch_elements(queue, cuda::inverse_std_kernel<T>, channels, variance, eps, inv_std);
}

template <typename T, typename R>
void move_running_statistics(const CudaQueue& queue, std::int64_t channels, double momentum,
                             double factor, const T* mean, const T* variance, R* running_mean,
                             R* running_variance) {
  cuda::launch_elements(queue, cuda::move_running_kernel<T, R>, channels, momentum, factor, mean,
                        variance, running_mean, running_variance);
}

template <typename T>
void batch_norm_forward(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                        const T* x, const T* mean, const T* inv_std, const T* gamma, const T* beta,
                        T* y) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, rows, channels);
  cuda::launch(cuda::normalise_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r, x, mean,
               inv_std, gamma, beta, y);
}

template <typename T>
void batch_norm_backward_training(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                                  const T* x, const T* grad_y, const T* mean, const T* inv_std,
                                  const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, rows, channels);
  const cuda::Scratch<T> shifts(queue, channels), factors(queue, channels);
  cuda::parameter_gradients<T>(queue, r, x, grad_y, mean,
                               {inv_std, grad_gamma, grad_beta, shifts.data(), factors.data()});
  if (grad_x == nullptr) return;
  cuda::launch(cuda::backward_training_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r, x,
               grad_y, mean, inv_std, gamma, shifts.data(), factors.data(), grad_x);
}

template <typename T>
void batch_norm_backward_frozen(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                                const T* x, const T* grad_y, const T* mean, const T* inv_std,
                                const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta) {
  const cuda::RowChunks r = cuda::make_row_chunks(1, rows, channels);
  cuda::parameter_gradients<T>(queue, r, x, grad_y, mean,
                               {inv_std, grad_gamma, grad_beta, nullptr, nullptr});
  if (grad_x == nullptr) return;
  cuda::launch(cuda::backward_frozen_kernel<T>, cuda::over_rows(r), cuda::stream_of(queue), r,
               grad_y, inv_std, gamma, grad_x);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void batch_moments(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*, T*);     \
  template void inverse_std(const CudaQueue&, std::int64_t, const T*, double, T*);                 \
  template void move_running_statistics(const CudaQueue&, std::int64_t, double, double, const T*,  \
                                        const T*, float*, float*);                                 \
  template void move_running_statistics(const CudaQueue&, std::int64_t, double, double, const T*,  \
                                        const T*, double*, double*);                               \
  template void batch_norm_forward(const CudaQueue&, std::int64_t, std::int64_t, const T*,         \
                                   const T*, const T*, const T*, const T*, T*);                    \
  template void batch_norm_backward_training(const CudaQueue&, std::int64_t, std::int64_t,         \
                                             const T*, const T*, const T*, const T*, const T*, T*, \
                                             T*, T*);                                              \
  template void batch_norm_backward_frozen(const CudaQueue&, std::int64_t, std::int64_t, const T*, \
                                           const T*, const T*, const T*, const T*, T*, T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
