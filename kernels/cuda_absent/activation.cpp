// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/activation.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void smooth_activation_forward(const CudaQueue&, SmoothActivation, std::int64_t, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void smooth_activation_backward(const CudaQueue&, SmoothActivation, std::int64_t, const T*,
                                const T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                             \
  template void smooth_activation_forward(const CudaQueue&, SmoothActivation, std::int64_t,  \
                                          const T*, T*);                                     \
  template void smooth_activation_backward(const CudaQueue&, SmoothActivation, std::int64_t, \
                                           const T*, const T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
