// Convolutions by cuDNN, in builds with STEELYARD_CUDNN.
#pragma once

#include "steelyard/kernels/conv.h"

namespace steelyard::kernels::cuda {

#ifdef STEELYARD_CUDNN
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

// As the functions of kernels/conv.h, but with weights packed [O, KH, KW, C / groups] and without
// biases. False when nothing was done: the build has no cuDNN, T is not float, or cuDNN has no
// deterministic algorithm for the shape and queue.precision (not for bf16) within queue.part_bytes
// of scratch memory.
template <typename T>
bool cudnn_forward(const CudaQueue&, const Conv2dShape&, const T*, const T*, T*) {
  return false;
}
template <typename T>
bool cudnn_backward_input(const CudaQueue&, const Conv2dShape&, const T*, const T*, T*) {
  return false;
}
template <typename T>
bool cudnn_backward_weight(const CudaQueue&, const Conv2dShape&, const T*, const T*, T*) {
  return false;
}
#ifdef STEELYARD_CUDNN
// Throw std::runtime_error with the name that cuDNN has for a failure.
bool cudnn_forward(const CudaQueue& queue, const Conv2dShape& shape, const float* x,
                   const float* packed, float* y);
bool cudnn_backward_input(const CudaQueue& queue, const Conv2dShape& shape, const float* grad_y,
                          const float* packed, float* grad_x);
bool cudnn_backward_weight(const CudaQueue& queue, const Conv2dShape& shape, const float* x,
                           const float* grad_y, float* packed_grad);
#endif

}  // namespace steelyard::kernels::cuda
