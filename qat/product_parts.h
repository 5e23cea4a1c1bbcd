// What the products of quantized layers have in common.
#pragma once

#include "steelyard/qat/quantized_value.h"

namespace steelyard::qat {

// Sets elements of a weight's gradient to 0 where the mask, which may be undefined, has no one.
void apply_weight_mask(const Tensor& mask, const Tensor& grad);

// Channels `group` of a convolution's outputs, or all of a linear map's, from rows of codes, of
// which `rows_of_input` come from each row of x.
template <typename Code>
void multiply_groups(const Code* codes, const QuantizedValue& x, std::int64_t rows_of_input,
                     const WeightCodes& weight, const Tensor& bias, std::int64_t groups,
                     std::int64_t group, const Tensor& y);

}  // namespace steelyard::qat
