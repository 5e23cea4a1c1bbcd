// Convolutions by cuDNN, in builds with STEELYARD_CUDNN.
#pragma once

#include "steelyard/kernels/conv/conv.h"

namespace steelyard::kernels::cuda {

#ifdef STEELYARD_CUDNN
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

// Computes a Conv2d, Conv2dBackwardInput or Conv2dBackwardWeight whose weights, or their gradient,
// are packed [O, KH, KW, C / groups]; leaves out the bias. False when nothing was done: the build
// has no cuDNN, T is not float, or cuDNN has no deterministic algorithm for the shape and
// queue.precision (not for bf16) within queue.part_bytes of scratch memory.
template <class K>
bool cudnn_computes(const CudaQueue&, const K&) {
  return false;
}
#ifdef STEELYARD_CUDNN
// Throw std::runtime_error with the name that cuDNN has for a failure.
bool cudnn_computes(const CudaQueue& queue, const Conv2d<float>& k);
bool cudnn_computes(const CudaQueue& queue, const Conv2dBackwardInput<float>& k);
bool cudnn_computes(const CudaQueue& queue, const Conv2dBackwardWeight<float>& k);
#endif

}  // namespace steelyard::kernels::cuda
