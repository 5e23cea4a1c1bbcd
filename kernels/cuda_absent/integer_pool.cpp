// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/integer_pool.h"

#include "kernels/cuda_absent/absent.h"

namespace steelyard::kernels {

template <typename Code>
void integer_window_sums(const CudaQueue&, const Pool2dShape&, const Code*, const std::int32_t*,
                         std::int32_t*) {
  cuda_is_absent();
}
template <typename Code>
void requantize_average(const CudaQueue&, std::int64_t, const Average&, const std::int32_t*,
                        const float*, const float*, const std::int32_t*, CodeRange, Code*,
                        std::uint8_t*) {
  cuda_is_absent();
}
void dequantize_average(const CudaQueue&, std::int64_t, std::int64_t, const std::int32_t*,
                        const float*, float*) {
  cuda_is_absent();
}

#define STEELYARD_INSTANTIATE(Code)                                                    \
  template void integer_window_sums(const CudaQueue&, const Pool2dShape&, const Code*, \
                                    const std::int32_t*, std::int32_t*);               \
  template void requantize_average(const CudaQueue&, std::int64_t, const Average&,     \
                                   const std::int32_t*, const float*, const float*,    \
                                   const std::int32_t*, CodeRange, Code*, std::uint8_t*);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
