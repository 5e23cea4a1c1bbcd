// Quantized forms of the layers that only move elements: permutations, other shapes, parts, borders
// of 0, pixels that repeat. They move codes, which share their input's quantizer; floats are moved
// as floats.
#pragma once

#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/qat/forms/quantized_form.h"

namespace steelyard::qat {

// Inputs must carry codes (quantized(x) is not null); the arguments are those of the operations on
// floats.
Variable permute_codes(const Variable& x, const std::vector<std::int64_t>& order);
Variable reshape_codes(const Variable& x, const Shape& shape);
Variable slice_codes(const Variable& x, const std::vector<TakenAxis>& axes);
// A border of zero points; nothing is cut off.
Variable pad_codes(const Variable& x, const std::vector<std::int64_t>& before,
                   const std::vector<std::int64_t>& after);
Variable repeat_codes(const Variable& x, std::int64_t rows, std::int64_t columns);

// Other shapes and parts of values that may carry codes.
Variable under_shape(const Variable& x, const Shape& shape);
Variable part_of(const Variable& x, const std::vector<TakenAxis>& axes);

QuantizedForm permute_form();
QuantizedForm reshape_form();
QuantizedForm slice_form();
QuantizedForm pad_form();     // by 0
QuantizedForm resize_form();  // by repeated pixels

}  // namespace steelyard::qat
