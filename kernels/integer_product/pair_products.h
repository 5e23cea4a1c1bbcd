// The integer products without any library: exact int32 on every machine, at twice the rate of
// float32 products on processors with AVX2.
#pragma once

#include "steelyard/kernels/integer_product/integer_product.h"

namespace steelyard::kernels::pair_products {

// As the family says, for non-empty shapes. Code is int8_t or uint8_t.
template <typename Code>
void compute(const IntegerConv2d<Code>& k);
// The same for one input and one output channel per group.
template <typename Code>
void compute_depthwise(const IntegerConv2d<Code>& k);

}  // namespace steelyard::kernels::pair_products
