// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/elementwise.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void add(const CudaQueue&, std::int64_t, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void multiply(const CudaQueue&, std::int64_t, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void scale(const CudaQueue&, std::int64_t, const T*, T, T*) {
  cuda_is_absent();
}
template <typename T>
void fill(const CudaQueue&, std::int64_t, T, T*) {
  cuda_is_absent();
}
template <typename T>
void relu_forward(const CudaQueue&, std::int64_t, const T*, T, T*) {
  cuda_is_absent();
}
template <typename T>
void relu_backward(const CudaQueue&, std::int64_t, const T*, const T*, T, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                          \
  template void add(const CudaQueue&, std::int64_t, const T*, const T*, T*);              \
  template void multiply(const CudaQueue&, std::int64_t, const T*, const T*, T*);         \
  template void scale(const CudaQueue&, std::int64_t, const T*, T, T*);                   \
  template void relu_forward(const CudaQueue&, std::int64_t, const T*, T, T*);            \
  template void relu_backward(const CudaQueue&, std::int64_t, const T*, const T*, T, T*); \
  template void fill(const CudaQueue&, std::int64_t, T, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void fill(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t*);
template void fill(const CudaQueue&, std::int64_t, std::int32_t, std::int32_t*);
template void fill(const CudaQueue&, std::int64_t, std::int8_t, std::int8_t*);
template void fill(const CudaQueue&, std::int64_t, std::uint8_t, std::uint8_t*);

}  // namespace steelyard::kernels
