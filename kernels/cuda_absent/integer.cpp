// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/integer.h"

#include "kernels/cuda_absent/absent.h"

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
void dequantize_accumulators(const CudaQueue&, const Requantize&, const std::int32_t*,
                             const std::int32_t*, const float*, float*) {
  cuda_is_absent();
}
void observe_accumulators(const CudaQueue&, const RangeRule&, const RangeQuantizer&,
                          const Requantize&, const std::int32_t*, const std::int32_t*,
                          const float*) {
  cuda_is_absent();
}
template <typename Code>
void requantize(const CudaQueue&, const Requantize&, const std::int32_t*, const std::int32_t*,
                const float*, const float*, const std::int32_t*, CodeRange, Code*, std::uint8_t*) {
  cuda_is_absent();
}
template <typename CodeA, typename CodeB, typename CodeY>
void requantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*, QuantizedOperand,
                    const CodeB*, QuantizedOperand, const float*, const std::int32_t*, CodeRange,
                    CodeY*, std::uint8_t*) {
  cuda_is_absent();
}
template <typename CodeA, typename CodeB>
void dequantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*, QuantizedOperand,
                    const CodeB*, QuantizedOperand, float*) {
  cuda_is_absent();
}
template <typename Code>
void activate_codes(const CudaQueue&, std::int64_t, Activation, const Code*, const float*,
                    const std::int32_t*, CodeRange, Code*, std::uint8_t*) {
  cuda_is_absent();
}
template <typename Code>
void drop_codes(const CudaQueue&, std::int64_t, const std::uint8_t*, const Code*,
                const std::int32_t*, Code*) {
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

#define STEELYARD_INSTANTIATE(Code)                                                              \
  template void requantize(const CudaQueue&, const Requantize&, const std::int32_t*,             \
                           const std::int32_t*, const float*, const float*, const std::int32_t*, \
                           CodeRange, Code*, std::uint8_t*);                                     \
  template void activate_codes(const CudaQueue&, std::int64_t, Activation, const Code*,          \
                               const float*, const std::int32_t*, CodeRange, Code*,              \
                               std::uint8_t*);                                                   \
  template void drop_codes(const CudaQueue&, std::int64_t, const std::uint8_t*, const Code*,     \
                           const std::int32_t*, Code*);
STEELYARD_INSTANTIATE(std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t)
#undef STEELYARD_INSTANTIATE

#define STEELYARD_INSTANTIATE(CodeA, CodeB)                                                    \
  template void dequantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, float*);      \
  template void requantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, const float*, \
                               const std::int32_t*, CodeRange, std::int8_t*, std::uint8_t*);   \
  template void requantize_add(const CudaQueue&, std::int64_t, Activation, const CodeA*,       \
                               QuantizedOperand, const CodeB*, QuantizedOperand, const float*, \
                               const std::int32_t*, CodeRange, std::uint8_t*, std::uint8_t*);
STEELYARD_INSTANTIATE(std::int8_t, std::int8_t)
STEELYARD_INSTANTIATE(std::int8_t, std::uint8_t)
STEELYARD_INSTANTIATE(std::uint8_t, std::int8_t)
STEELYARD_INSTANTIATE(std::uint8_t, std::uint8_t)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
