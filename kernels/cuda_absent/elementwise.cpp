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

template <typename T>
void scale_by(const CudaQueue&, std::int64_t, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void mix(const CudaQueue&, std::int64_t, double, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void add_weighted(const CudaQueue&, const T*, double, double*) {
  cuda_is_absent();
}
template <typename T>
void add_bias(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void copy_columns(const CudaQueue&, std::int64_t, std::int64_t, const T*, std::int64_t, T*,
                  std::int64_t) {
  cuda_is_absent();
}
template <typename T>
void column_sums(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void mean_squared_error(const CudaQueue&, std::int64_t, const T*, const T*, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void mean_huber_error(const CudaQueue&, std::int64_t, const T*, const T*, double, T*, T*) {
  cuda_is_absent();
}
template <typename T>
void count_non_finite(const CudaQueue&, std::int64_t, const T*, std::int64_t*) {
  cuda_is_absent();
}
template <typename T>
void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void nchw_to_nhwc(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, T*) {
  cuda_is_absent();
}
void swap_bytes(const CudaQueue&, std::int64_t, void*, void*) { cuda_is_absent(); }

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void add(const CudaQueue&, std::int64_t, const T*, const T*, T*);                       \
  template void multiply(const CudaQueue&, std::int64_t, const T*, const T*, T*);                  \
  template void scale(const CudaQueue&, std::int64_t, const T*, T, T*);                            \
  template void scale_by(const CudaQueue&, std::int64_t, const T*, const T*, T*);                  \
  template void mix(const CudaQueue&, std::int64_t, double, const T*, const T*, T*);               \
  template void add_weighted(const CudaQueue&, const T*, double, double*);                         \
  template void add_bias(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, T*);    \
  template void copy_columns(const CudaQueue&, std::int64_t, std::int64_t, const T*, std::int64_t, \
                             T*, std::int64_t);                                                    \
  template void relu_forward(const CudaQueue&, std::int64_t, const T*, T, T*);                     \
  template void relu_backward(const CudaQueue&, std::int64_t, const T*, const T*, T, T*);          \
  template void fill(const CudaQueue&, std::int64_t, T, T*);                                       \
  template void column_sums(const CudaQueue&, std::int64_t, std::int64_t, const T*, T*);           \
  template void mean_squared_error(const CudaQueue&, std::int64_t, const T*, const T*, T*, T*);    \
  template void mean_huber_error(const CudaQueue&, std::int64_t, const T*, const T*, double, T*,   \
                                 T*);                                                              \
  template void count_non_finite(const CudaQueue&, std::int64_t, const T*, std::int64_t*);         \
  template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, \
                             T*);                                                                  \
  template void nchw_to_nhwc(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const T*, \
                             T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void fill(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t*);
template void fill(const CudaQueue&, std::int64_t, std::int32_t, std::int32_t*);
template void fill(const CudaQueue&, std::int64_t, std::int8_t, std::int8_t*);
template void fill(const CudaQueue&, std::int64_t, std::uint8_t, std::uint8_t*);
template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                           const std::int8_t*, std::int8_t*);
template void nhwc_to_nchw(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t,
                           const std::uint8_t*, std::uint8_t*);

}  // namespace steelyard::kernels
