#include "kernels/norm_fold.h"

#include "kernels/cuda/grid.h"
#include "kernels/norm_fold_rules.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kThreads;
using cuda::launch_elements;

template <typename Rule, typename... Parameters>
__global__ void channel_kernel(std::int64_t channels, Parameters... parameters) {
  const std::int64_t c = element_index();
  if (c < channels) Rule::at(c, parameters...);
}

template <typename Rule, typename... Parameters>
void each_channel(const CudaQueue& queue, std::int64_t channels, Parameters... parameters) {
  launch_elements(queue, channel_kernel<Rule, Parameters...>, channels, parameters...);
}

template <typename T>
__global__ void fold_weight_kernel(std::int64_t n, std::int64_t inner, const T* weight,
                                   const T* gamma, const double* std_dev, T* folded) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t c = i / inner;
  folded[i] =
      static_cast<T>(static_cast<double>(weight[i]) * norm_fold::factor_of(gamma[c], std_dev[c]));
}

// One block, one channel.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    fold_weight_backward_kernel(std::int64_t inner, const T* weight, const T* gamma,
                                const double* std_dev, const T* grad_folded, T* grad_weight,
                                T* grad_gamma) {
  double* sums = cuda::shared_memory<double>();
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t c = blockIdx.x;
  const double factor = norm_fold::factor_of(gamma[c], std_dev[c]);
  double sum = 0;
  for (std::int64_t i = c * inner + thread; i < (c + 1) * inner; i += kThreads) {
    const double grad = static_cast<double>(grad_folded[i]);
    grad_weight[i] = static_cast<T>(grad * factor);
    sum += grad * static_cast<double>(weight[i]);
  }
  sums[thread] = sum;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half];
  }
  if (thread == 0) grad_gamma[c] = static_cast<T>(sums[0] / std_dev[c]);
}

}  // namespace

template <typename T>
void fold_weight(const CudaQueue& queue, std::int64_t channels, std::int64_t inner, const T* weight,
                 const T* gamma, const double* std_dev, T* folded) {
  launch_elements(queue, fold_weight_kernel<T>, channels * inner, inner, weight, gamma, std_dev,
                  folded);
}

template <typename T>
void fold_weight_backward(const CudaQueue& queue, std::int64_t channels, std::int64_t inner,
                          const T* weight, const T* gamma, const double* std_dev,
                          const T* grad_folded, T* grad_weight, T* grad_gamma) {
  cuda::launch(fold_weight_backward_kernel<T>, {channels, kThreads, kThreads * sizeof(double)},
               cuda::stream_of(queue), inner, weight, gamma, std_dev, grad_folded, grad_weight,
               grad_gamma);
}

template <typename R>
void running_std(const CudaQueue& queue, std::int64_t channels, const R* variance, double eps,
                 double* std_dev) {
  each_channel<norm_fold::RunningStd>(queue, channels, variance, eps, std_dev);
}

template <typename T, typename R>
void fold_bias(const CudaQueue& queue, std::int64_t channels, const T* bias, const T* gamma,
               const T* beta, const R* mean, const double* std_dev, double* centred, T* folded) {
  each_channel<norm_fold::FoldBias>(queue, channels, bias, gamma, beta, mean, std_dev, centred,
                                    folded);
}

template <typename T>
void fold_bias_backward(const CudaQueue& queue, std::int64_t channels, const T* grad_folded,
                        const T* gamma, const double* std_dev, const double* centred, T* grad_gamma,
                        T* grad_bias) {
  each_channel<norm_fold::FoldBiasBackward>(queue, channels, grad_folded, gamma, std_dev, centred,
                                            grad_gamma, grad_bias);
}

template <typename T>
void keep_from_zero(const CudaQueue& queue, std::int64_t channels, T smallest, const T* x, T* y) {
  each_channel<norm_fold::KeepFromZero>(queue, channels, smallest, x, y);
}

template <typename T>
void fold_factor(const CudaQueue& queue, std::int64_t channels, const T* gamma,
                 const double* std_dev, double* factor) {
  each_channel<norm_fold::FoldFactor>(queue, channels, gamma, std_dev, factor);
}

template <typename T>
void corrected_norm_terms(const CudaQueue& queue, std::int64_t channels, const T* gamma,
                          const T* mean, const T* variance, double eps, const double* std_dev,
                          const T* offset, T* inv_std, T* ratio, T* hidden_mean, T* shifted_mean) {
  each_channel<norm_fold::CorrectedTerms>(queue, channels, gamma, mean, variance, eps, std_dev,
                                          offset, inv_std, ratio, hidden_mean, shifted_mean);
}

template <typename T>
void corrected_norm_backward(const CudaQueue& queue, std::int64_t channels, std::int64_t rows,
                             const T* gamma, const T* mean, const T* inv_std, const T* grad_ratio,
                             const T* grad_beta, T* grad_gamma, T* slope, T* shift) {
  each_channel<norm_fold::CorrectedBackward>(queue, channels, rows, gamma, mean, inv_std,
                                             grad_ratio, grad_beta, grad_gamma, slope, shift);
}

template <typename T>
void recovered_norm_terms(const CudaQueue& queue, std::int64_t channels, const double* factor,
                          const T* product_mean, const T* product_variance, double eps,
                          const T* offset, T* mean, T* variance, T* inv_std) {
  each_channel<norm_fold::RecoveredTerms>(queue, channels, factor, product_mean, product_variance,
                                          eps, offset, mean, variance, inv_std);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void running_std(const CudaQueue&, std::int64_t, const T*, double, double*);            \
  template void fold_bias_backward(const CudaQueue&, std::int64_t, const T*, const T*,             \
                                   const double*, const double*, T*, T*);                          \
  template void keep_from_zero(const CudaQueue&, std::int64_t, T, const T*, T*);                   \
  template void fold_factor(const CudaQueue&, std::int64_t, const T*, const double*, double*);     \
  template void corrected_norm_terms(const CudaQueue&, std::int64_t, const T*, const T*, const T*, \
                                     double, const double*, const T*, T*, T*, T*, T*);             \
  template void corrected_norm_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*,    \
                                        const T*, const T*, const T*, const T*, T*, T*, T*);       \
  template void recovered_norm_terms(const CudaQueue&, std::int64_t, const double*, const T*,      \
                                     const T*, double, const T*, T*, T*, T*);                      \
  template void fold_weight(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*,      \
                            const double*, T*);                                                    \
  template void fold_weight_backward(const CudaQueue&, std::int64_t, std::int64_t, const T*,       \
                                     const T*, const double*, const T*, T*, T*);                   \
  template void fold_bias(const CudaQueue&, std::int64_t, const T*, const T*, const T*,            \
                          const float*, const double*, double*, T*);                               \
  template void fold_bias(const CudaQueue&, std::int64_t, const T*, const T*, const T*,            \
                          const double*, const double*, double*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
