// Stands in for kernels/cuda in a build without CUDA.
#include "steelyard/kernels/conv.h"

#include "steelyard/kernels/cuda_absent/absent.h"

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
void conv2d_backward_input(const CudaQueue&, const Conv2dShape&, const float*, const std::int8_t*,
                           std::int64_t, const float*, float*) {
  cuda_is_absent();
}
template <typename Code>
void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const Code*, const float*,
                            const std::int32_t*, const float*, const std::uint8_t*, float*) {
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
template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const std::int8_t*,
                                     const float*, const std::int32_t*, const float*,
                                     const std::uint8_t*, float*);
template void conv2d_backward_weight(const CudaQueue&, const Conv2dShape&, const std::uint8_t*,
                                     const float*, const std::int32_t*, const float*,
                                     const std::uint8_t*, float*);

}  // namespace steelyard::kernels
