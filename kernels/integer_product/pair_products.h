// The integer products without any library: exact int32 on every machine. With AVX2, an instruction
// multiplies twice as many pairs as one of float32; large products run at 1.3 to 1.8 times the
// speed of float32 ones (docs/design.md, Threads and backends).
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
