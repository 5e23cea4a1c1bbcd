// The integer products, exact in int32 on every machine, by tiles of sums in registers: with VNNI
// and, in most cases, on 64-bit Arm codes are multiplied as bytes (quad_sums.h, arm_sums.h), with
// AVX2 too where weights are kept and few are large (byte_sums.h), elsewhere as int16
// (pair_sums.h).
// docs/design_history.md, Integer products, compares both with float32 products.
#pragma once

#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantizer.h"

namespace steelyard::kernels::tiled_products {

// As the family says, for non-empty shapes. Code is int8_t or uint8_t.
template <typename Code>
void compute(const IntegerConv2d<Code>& k);
// Requantizes the sums of some pixels while they are in the cache; k.acc is not read or written.
template <typename Code, typename Out>
void compute(const IntegerConv2d<Code>& k, const Requantizer<Out>& requantize);

}  // namespace steelyard::kernels::tiled_products
