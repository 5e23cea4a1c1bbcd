// What the products of quantized layers have in common.
#pragma once

#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// Sets elements of a weight's gradient to 0 where the mask, which may be undefined, has no one.
void apply_weight_mask(const Tensor& mask, const Tensor& grad);

// One of the groups of channels of a convolution; a linear map is one group.
struct ChannelGroup {
  std::int64_t groups = 1;
  std::int64_t group = 0;
};

// The outputs of a group of channels from rows of codes, of which `rows_of_input` come from each
// row of x.
template <typename Code>
void multiply_groups(const Code* codes, const QuantizedValue& x, std::int64_t rows_of_input,
                     const WeightCodes& weight, const Tensor& bias, ChannelGroup of,
                     const Tensor& y);

}  // namespace steelyard::qat
