// Stands in for kernels/cuda in a build without CUDA.
#include "steelyard/kernels/integer.h"

#include "steelyard/kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename Code>
void integer_matmul(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, const Code*,
                    const std::int32_t*, const std::int8_t*, std::int32_t*, std::int64_t) {
  cuda_is_absent();
}
template <typename Code>
void integer_conv2d(const CudaQueue&, const Conv2dShape&, const Code*, const std::int32_t*,
                    const std::int8_t*, std::int32_t*, std::int64_t) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(Code)                                                        \
  template void integer_matmul(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t, \
                               const Code*, const std::int32_t*, const std::int8_t*,       \
                               std::int32_t*, std::int64_t);                               \
  template void integer_conv2d(const CudaQueue&, const Conv2dShape&, const Code*,          \
                               const std::int32_t*, const std::int8_t*, std::int32_t*,     \
                               std::int64_t);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
