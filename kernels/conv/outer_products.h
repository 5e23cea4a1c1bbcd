// Weight gradients of convolutions without any library: as sums of outer products, whose operands
// are packed a few lines of pixels at a time, so that codes of inputs become floats in the cache.
// Private to this family.
#pragma once

#include "steelyard/kernels/conv/conv.h"

namespace steelyard::kernels::outer_products {

// As conv.h says, for non-empty shapes with more than a channel per group, on the precision of the
// products. Code is int8_t or uint8_t, Gradient float or BFloat16.
void compute(const Conv2dBackwardWeight<float>& k);
template <typename Code, typename Gradient>
void compute(const CodesBackwardWeight<Code, Gradient>& k);

}  // namespace steelyard::kernels::outer_products
