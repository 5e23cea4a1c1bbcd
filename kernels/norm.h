// Batch normalisation over the rows of a [rows, channels] matrix (NHWC: rows = N*H*W).
// Source: Ioffe and Szegedy, "Batch Normalization", 2015.
#pragma once

#include <cstdint>

namespace steelyard::kernels {

// Per-channel mean and biased variance over all rows, accumulated in double, in an order that does
// not depend on the number of threads.
template <typename T>
void batch_moments(std::int64_t rows, std::int64_t channels, const T* x, T* mean, T* variance);

// y = (x - mean) * inv_std * gamma + beta, per channel; inv_std = 1 / sqrt(variance + eps).
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

}  // namespace steelyard::kernels
