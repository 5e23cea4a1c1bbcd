// Integer products by oneDNN. Private to kernels/cpu.
#pragma once

#include <cstdint>

#include "steelyard/kernels/conv.h"

namespace steelyard::kernels::onednn {

// True where oneDNN's int8 kernels accumulate exactly: with VNNI, and when DNNL_MAX_CPU_ISA lets
// oneDNN use it. Without, pairs of products saturate at int16 (NUMERICS).
bool has_exact_int8();

// The contracts of integer_matmul and integer_conv2d, for m, n, k and all sizes > 0.
template <typename Code>
void integer_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    std::int32_t x_zero_point, const std::int8_t* w, std::int32_t* acc);
template <typename Code>
void integer_conv2d(const Conv2dShape& shape, const Code* x, std::int32_t x_zero_point,
                    const std::int8_t* w, std::int32_t* acc);

}  // namespace steelyard::kernels::onednn
