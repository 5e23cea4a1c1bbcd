// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/pool.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void max_pool2d_forward(const CudaQueue&, const Pool2dShape&, const T*, T*, std::uint16_t*) {
  cuda_is_absent();
}
template <typename T>
void max_pool2d_backward(const CudaQueue&, const Pool2dShape&, const T*, const std::uint16_t*, T*) {
  cuda_is_absent();
}
template <typename T>
void avg_pool2d_forward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void avg_pool2d_backward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void global_avg_pool_forward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*,
                             T*) {
  cuda_is_absent();
}
template <typename T>
void global_avg_pool_backward(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*,
                              T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE_MAXIMUM(T)                                               \
  template void max_pool2d_forward(const CudaQueue&, const Pool2dShape&, const T*, T*, \
                                   std::uint16_t*);
#define STEELYARD_INSTANTIATE(T)                                                               \
  template void max_pool2d_backward(const CudaQueue&, const Pool2dShape&, const T*,            \
                                    const std::uint16_t*, T*);                                 \
  template void avg_pool2d_forward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*);  \
  template void avg_pool2d_backward(const CudaQueue&, const Pool2dShape&, bool, const T*, T*); \
  template void global_avg_pool_forward(const CudaQueue&, std::int64_t, std::int64_t,          \
                                        std::int64_t, const T*, T*);                           \
  template void global_avg_pool_backward(const CudaQueue&, std::int64_t, std::int64_t,         \
                                         std::int64_t, const T*, T*);
STEELYARD_INSTANTIATE_MAXIMUM(std::int8_t)
STEELYARD_INSTANTIATE_MAXIMUM(std::uint8_t)
STEELYARD_INSTANTIATE_MAXIMUM(float)
STEELYARD_INSTANTIATE_MAXIMUM(double)
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
#undef STEELYARD_INSTANTIATE_MAXIMUM

}  // namespace steelyard::kernels
