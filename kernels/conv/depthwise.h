// Weight gradients of depthwise convolutions in float32, a line of pixels at a time: the sums of
// some taps stay in registers while a line passes. Private to this family.
#pragma once

#include "steelyard/kernels/conv/conv.h"

namespace steelyard::kernels::depthwise {

// As conv.h says, for non-empty shapes with a filter for each channel; always in float32. Code is
// int8_t or uint8_t.
void compute(const Conv2dBackwardWeight<float>& k);
template <typename Code>
void compute(const CodesBackwardWeight<Code>& k);

}  // namespace steelyard::kernels::depthwise
