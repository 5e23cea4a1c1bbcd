#include "steelyard/kernels/cpu/onednn/integer.h"

#include <stdexcept>

namespace steelyard::kernels::onednn {

bool has_exact_int8() { return false; }

template <typename Code>
void integer_matmul(std::int64_t, std::int64_t, std::int64_t, const Code*, std::int32_t,
                    const std::int8_t*, std::int32_t*) {
  throw std::runtime_error("[integer_matmul] built without oneDNN");
}

template <typename Code>
void integer_conv2d(const Conv2dShape&, const Code*, std::int32_t, const std::int8_t*,
                    std::int32_t*) {
  throw std::runtime_error("[integer_conv2d] built without oneDNN");
}

template void integer_matmul(std::int64_t, std::int64_t, std::int64_t, const std::int8_t*,
                             std::int32_t, const std::int8_t*, std::int32_t*);
template void integer_matmul(std::int64_t, std::int64_t, std::int64_t, const std::uint8_t*,
                             std::int32_t, const std::int8_t*, std::int32_t*);
template void integer_conv2d(const Conv2dShape&, const std::int8_t*, std::int32_t,
                             const std::int8_t*, std::int32_t*);
template void integer_conv2d(const Conv2dShape&, const std::uint8_t*, std::int32_t,
                             const std::int8_t*, std::int32_t*);

}  // namespace steelyard::kernels::onednn
