// Activations quantized with scales of their own values, in training as in evaluation.
#pragma once

#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::qat {

// Codes of f32 x [..., features] on the grids of a dynamic scheme: a scale and zero point for each
// row, or for each `group_size` consecutive features of one, from its smallest and largest finite
// value. The gradient is straight-through. Values that are not finite are added to `non_finite`
// (i64, where x is). Throws std::invalid_argument where groups do not divide the features.
Variable quantize_dynamically(const Variable& x, const observers::QScheme& scheme,
                              const Tensor& non_finite);

}  // namespace steelyard::qat
