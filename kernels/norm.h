// Batch normalisation over the rows of a [rows, channels] matrix (NHWC: rows = N*H*W).
// Source: Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// Per-channel mean and biased variance over all rows, accumulated in double, in an order that does
// not depend on the number of threads.
template <typename T>
void batch_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* variance);

// inv_std = 1 / sqrt(variance + eps), in double.
template <typename T>
void inverse_std(std::int64_t channels, const T* variance, double eps, T* inv_std);

// running = (1 - momentum) * running + momentum * batch, in double; the variance is times `factor`
// first. R too is float or double.
template <typename T, typename R>
void move_running_statistics(std::int64_t channels, double momentum, double factor, const T* mean,
                             const T* variance, R* running_mean, R* running_variance);

// y = (x - mean) * inv_std * gamma + beta, per channel.
template <typename T>
void batch_norm_forward(std::int64_t rows, std::int64_t channels, const T* x, const T* mean,
                        const T* inv_std, const T* gamma, const T* beta, T* y);

// Gradients with batch statistics (mean and variance depend on x). grad_gamma and grad_beta are
// overwritten; grad_x may be null.
template <typename T>
void batch_norm_backward_training(std::int64_t rows, std::int64_t channels, const T* x,
                                  const T* grad_y, const T* mean, const T* inv_std, const T* gamma,
                                  T* grad_x, T* grad_gamma, T* grad_beta);

// Gradients with fixed (running) statistics.
template <typename T>
void batch_norm_backward_frozen(std::int64_t rows, std::int64_t channels, const T* x,
                                const T* grad_y, const T* mean, const T* inv_std, const T* gamma,
                                T* grad_x, T* grad_gamma, T* grad_beta);

// The same on a GPU.
template <typename T>
void batch_moments(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
                   T* mean, T* variance);
template <typename T>
void inverse_std(const CudaQueue& queue, std::int64_t channels, const T* variance, double eps,
                 T* inv_std);
template <typename T, typename R>
void move_running_statistics(const CudaQueue& queue, std::int64_t channels, double momentum,
                             double factor, const T* mean, const T* variance, R* running_mean,
                             R* running_variance);
template <typename T>
void batch_norm_forward(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                        const T* x, const T* mean, const T* inv_std, const T* gamma, const T* beta,
                        T* y);
template <typename T>
void batch_norm_backward_training(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                                  const T* x, const T* grad_y, const T* mean, const T* inv_std,
                                  const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta);
template <typename T>
void batch_norm_backward_frozen(const CudaQueue& queue, std::int64_t rows, std::int64_t channels,
                                const T* x, const T* grad_y, const T* mean, const T* inv_std,
                                const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta);

}  // namespace steelyard::kernels
