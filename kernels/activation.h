// Smooth activations on dense arrays. T is float or double.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

enum class SmoothActivation {
  kGelu,      // x * Phi(x), Phi by erf (Hendrycks and Gimpel, arXiv:1606.08415)
  kSilu,      // x / (1 + exp(-x)) (Elfwing et al., arXiv:1702.03118)
  kHardswish  // x * min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244)
};

template <typename T>
void smooth_activation_forward(SmoothActivation activation, std::int64_t n, const T* x, T* y);
// grad_x = grad_y * f'(x); hardswish has f' = 0 at -3 and 1 at 3.
template <typename T>
void smooth_activation_backward(SmoothActivation activation, std::int64_t n, const T* x,
                                const T* grad_y, T* grad_x);

// The same on a GPU.
template <typename T>
void smooth_activation_forward(const CudaQueue& queue, SmoothActivation activation, std::int64_t n,
                               const T* x, T* y);
template <typename T>
void smooth_activation_backward(const CudaQueue& queue, SmoothActivation activation, std::int64_t n,
                                const T* x, const T* grad_y, T* grad_x);

}  // namespace steelyard::kernels
