// The integer products without any library: exact int32 on every machine.
#pragma once

#include <cstdint>

#include "steelyard/kernels/conv.h"

namespace steelyard::kernels::reference {

// The contracts of integer_matmul and integer_conv2d. Code is int8_t or uint8_t.
template <typename Code>
void integer_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    std::int32_t x_zero_point, const std::int8_t* w, std::int32_t* acc);
template <typename Code>
void integer_conv2d(const Conv2dShape& shape, const Code* x, std::int32_t x_zero_point,
                    const std::int8_t* w, std::int32_t* acc);

// The same for one input and one output channel per group (depthwise).
template <typename Code>
void integer_depthwise_conv2d(const Conv2dShape& shape, const Code* x, std::int32_t x_zero_point,
                              const std::int8_t* w, std::int32_t* acc);

}  // namespace steelyard::kernels::reference
