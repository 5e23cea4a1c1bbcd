// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/conv.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void conv2d_forward(const CudaQueue&, const Conv2dShape&, const T*, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void conv2d_backward_input(const CudaQueue&, const Conv2dShape&, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const T*, const T*, T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void conv2d_forward(const CudaQueue&, const Conv2dShape&, const T*, const T*, const T*, \
                               T*);                                                                \
  template void conv2d_backward_input(const CudaQueue&, const Conv2dShape&, const T*, const T*,    \
                                      T*);                                                         \
  template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const T*, const T*,   \
                                       T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
