// Stands in for kernels/cuda in a build without CUDA.
#include "steelyard/kernels/fake_quantize.h"

#include "steelyard/kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename T>
void fake_quantize_forward(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,
                           const std::int32_t*, T*) {
  cuda_is_absent();
}
template <typename T>
void fake_quantize_backward(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,
                            const std::int32_t*, const T*, T*) {
  cuda_is_absent();
}
template <typename T, typename Code>
void quantize(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,
              const std::int32_t*, Code*, std::uint8_t*, std::int64_t*) {
  cuda_is_absent();
}
template <typename T, typename Code>
void dequantize(const CudaQueue&, const ChannelLayout&, const Code*, const T*, const std::int32_t*,
                T*) {
  cuda_is_absent();
}
template <typename T>
void apply_mask(const CudaQueue&, std::int64_t, const std::uint8_t*, const T*, T*) {
  cuda_is_absent();
}
template <typename T>
void apply_mask_and_sum(const CudaQueue&, std::int64_t, std::int64_t, const std::uint8_t*, const T*,
                        T*, T*) {
  cuda_is_absent();
}
template <typename T>
void clipped_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,
                      const std::int32_t*, const T*, T*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void fake_quantize_forward(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, \
                                      const T*, const std::int32_t*, T*);                          \
  template void fake_quantize_backward(const CudaQueue&, const ChannelLayout&, CodeRange,          \
                                       const T*, const T*, const std::int32_t*, const T*, T*);     \
  template void clipped_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const T*,      \
                                 const T*, const std::int32_t*, const T*, T*);                     \
  template void apply_mask(const CudaQueue&, std::int64_t, const std::uint8_t*, const T*, T*);     \
  template void apply_mask_and_sum(const CudaQueue&, std::int64_t, std::int64_t,                   \
                                   const std::uint8_t*, const T*, T*, T*);                         \
  template void quantize(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,    \
                         const std::int32_t*, std::int8_t*, std::uint8_t*, std::int64_t*);         \
  template void quantize(const CudaQueue&, const ChannelLayout&, CodeRange, const T*, const T*,    \
                         const std::int32_t*, std::uint8_t*, std::uint8_t*, std::int64_t*);        \
  template void dequantize(const CudaQueue&, const ChannelLayout&, const std::int8_t*, const T*,   \
                           const std::int32_t*, T*);                                               \
  template void dequantize(const CudaQueue&, const ChannelLayout&, const std::uint8_t*, const T*,  \
                           const std::int32_t*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
