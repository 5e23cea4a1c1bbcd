// The integer products without any library: exact int32 on every machine, at twice the rate of
// float32 products on processors with AVX2.
#pragma once

#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantizer.h"

namespace steelyard::kernels::pair_products {

// As the family says, for non-empty shapes. Code is int8_t or uint8_t.
template <typename Code>
void compute(const IntegerConv2d<Code>& k);
// Requantizes the sums of some pixels while they are in the cache; k.acc is not read or written.
template <typename Code, typename Out>
void compute(const IntegerConv2d<Code>& k, const Requantizer<Out>& requantize);

}  // namespace steelyard::kernels::pair_products
