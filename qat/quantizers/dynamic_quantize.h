// Dynamic quantization of activations: scales come from the values themselves, in training and in
// evaluation.
#pragma once

#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/quantizers/quantized_value.h"

namespace steelyard::qat {

// Codes of f32 x on the grids of a dynamic scheme: a scale and zero point for each of the rows, of
// `row_size` elements, for each `group_size` consecutive elements of one, or for each block of rows
// and columns, from its smallest and largest finite value. The gradient is straight-through. Values
// that are not finite are added to `non_finite` (i64, where x is). Throws std::invalid_argument
// where groups or blocks do not divide a row.
Variable quantize_dynamically(const Variable& x, const observers::QScheme& scheme,
                              std::int64_t row_size, const Tensor& non_finite);

}  // namespace steelyard::qat
