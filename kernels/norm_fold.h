// What folding a batch norm into the layer before it computes per channel, in double. T is float or
// double, R the type of the running statistics; arrays have one value per channel unless said
// otherwise. `std_dev` = sqrt(running variance + eps).
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

template <typename R>
void running_std(std::int64_t channels, const R* variance, double eps, double* std_dev);

// folded [channels, inner] = weight * gamma / std_dev.
template <typename T>
void fold_weight(std::int64_t channels, std::int64_t inner, const T* weight, const T* gamma,
                 const double* std_dev, T* folded);
template <typename T>
void fold_weight_backward(std::int64_t channels, std::int64_t inner, const T* weight,
                          const T* gamma, const double* std_dev, const T* grad_folded,
                          T* grad_weight, T* grad_gamma);

// centred = bias - mean, folded = beta + centred * gamma / std_dev; bias may be null: 0.
template <typename T, typename R>
void fold_bias(std::int64_t channels, const T* bias, const T* gamma, const T* beta, const R* mean,
               const double* std_dev, double* centred, T* folded);
template <typename T>
void fold_bias_backward(std::int64_t channels, const T* grad_folded, const T* gamma,
                        const double* std_dev, const double* centred, T* grad_gamma, T* grad_bias);

// y = x, but with its sign at least `smallest` in magnitude.
template <typename T>
void keep_from_zero(std::int64_t n, T smallest, const T* x, T* y);
// factor = gamma / std_dev.
template <typename T>
void fold_factor(std::int64_t channels, const T* gamma, const double* std_dev, double* factor);

// Of a batch's mean and variance: inv_std = 1 / sqrt(variance + eps), ratio = std_dev * inv_std,
// hidden_mean = gamma * mean / std_dev, shifted_mean = mean + offset; offset may be null: 0.
template <typename T>
void corrected_norm_terms(std::int64_t channels, const T* gamma, const T* mean, const T* variance,
                          double eps, const double* std_dev, const T* offset, T* inv_std, T* ratio,
                          T* hidden_mean, T* shifted_mean);
// grad_gamma, and the gradient of the raw product as (raw - mean) * slope + shift.
template <typename T>
void corrected_norm_backward(std::int64_t channels, std::int64_t rows, const T* gamma,
                             const T* mean, const T* inv_std, const T* grad_ratio,
                             const T* grad_beta, T* grad_gamma, T* slope, T* shift);

// The statistics of product / factor + offset from those of the product, and inv_std = 1 / (factor
// * sqrt(variance + eps)); offset may be null: 0.
template <typename T>
void recovered_norm_terms(std::int64_t channels, const double* factor, const T* product_mean,
                          const T* product_variance, double eps, const T* offset, T* mean,
                          T* variance, T* inv_std);

// The same on a GPU.
template <typename R>
void running_std(const CudaQueue& queue, std::int64_t channels, const R* variance, double eps,
                 double* std_dev);
template <typename T>
void fold_weight(const CudaQueue& queue, std::int64_t channels, std::int64_t inner, const T* weight,
                 const T* gamma, const double* std_dev, T* folded);
template <typename T>
void fold_weight_backward(const CudaQueue& queue, std::int64_t channels, std::int64_t inner,
                          const T* weight, const T* gamma, const double* std_dev,
                          const T* grad_folded, T* grad_weight, T* grad_gamma);
template <typename T, typename R>
void fold_bias(const CudaQueue& queue, std::int64_t channels, const T* bias, const T* gamma,
               const T* beta, const R* mean, const double* std_dev, double* centred, T* folded);
template <typename T>
void fold_bias_backward(const CudaQueue& queue, std::int64_t channels, const T* grad_folded,
                        const T* gamma, const double* std_dev, const double* centred, T* grad_gamma,
                        T* grad_bias);
template <typename T>
void keep_from_zero(const CudaQueue& queue, std::int64_t n, T smallest, const T* x, T* y);
template <typename T>
void fold_factor(const CudaQueue& queue, std::int64_t channels, const T* gamma,
                 const double* std_dev, double* factor);
template <typename T>
void corrected_norm_terms(const CudaQueue& queue, std::int64_t channels, const T* gamma,
                          const T* mean, const T* variance, double eps, const double* std_dev,
                          const T* offset, T* inv_std, T* ratio, T* hidden_mean, T* shifted_mean);
template <typename T>
void corrected_norm_backward(const CudaQueue& queue, std::int64_t channels, std::int64_t rows,
                             const T* gamma, const T* mean, const T* inv_std, const T* grad_ratio,
                             const T* grad_beta, T* grad_gamma, T* slope, T* shift);
template <typename T>
void recovered_norm_terms(const CudaQueue& queue, std::int64_t channels, const double* factor,
                          const T* product_mean, const T* product_variance, double eps,
                          const T* offset, T* mean, T* variance, T* inv_std);

}  // namespace steelyard::kernels
