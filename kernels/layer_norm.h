// Layer normalisation: every row of a [rows, columns] matrix by its own mean and variance.
// Source: Ba et al., "Layer Normalization", 2016, arXiv:1607.06450.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// y = (x - mean) * inv_std * gamma + beta with inv_std = 1 / sqrt(biased variance + eps); moments
// in double. mean and inv_std [rows] are written for backward.
template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t columns, const T* x, const T* gamma,
                        const T* beta, double eps, T* y, T* mean, T* inv_std);

// Gradients; grad_gamma and grad_beta [columns] are overwritten, in an order that does not depend
// on the number of threads. Each of the three may be null.
template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t columns, const T* x, const T* grad_y,
                         const T* mean, const T* inv_std, const T* gamma, T* grad_x, T* grad_gamma,
                         T* grad_beta);

// The same on a GPU.
template <typename T>
void layer_norm_forward(const CudaQueue& queue, std::int64_t rows, std::int64_t columns, const T* x,
                        const T* gamma, const T* beta, double eps, T* y, T* mean, T* inv_std);
template <typename T>
void layer_norm_backward(const CudaQueue& queue, std::int64_t rows, std::int64_t columns,
                         const T* x, const T* grad_y, const T* mean, const T* inv_std,
                         const T* gamma, T* grad_x, T* grad_gamma, T* grad_beta);

}  // namespace steelyard::kernels
