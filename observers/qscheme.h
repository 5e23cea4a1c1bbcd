// What a quantizer's grid looks like: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "steelyard/framework/dtype.h"
#include "steelyard/kernels/affine.h"

namespace steelyard::observers {

// How many scales a tensor has: one, one per slice of the first axis, one per `group_size`
// consecutive elements of such a slice, or one per row of the last axis (the words of
// compressed-tensors).
enum class Strategy { kTensor, kChannel, kGroup, kToken };

struct QScheme {
  int bits = 8;
  bool is_signed = true;
  bool symmetric = true;
  // Signed symmetric codes in [-qmax, qmax] instead of [-qmax - 1, qmax].
  bool narrow_range = true;
  Strategy strategy = Strategy::kTensor;
  std::int64_t group_size = 0;  // with kGroup
  // Scales and zero points come from the values themselves, in every pass: kToken, or kGroup of
  // rows of activations.
  bool dynamic = false;

  // The smallest and largest code: unsigned [0, 2^bits - 1], signed [-2^(bits-1), 2^(bits-1) - 1].
  kernels::CodeRange code_range() const;
  // i8 or u8.
  DType code_dtype() const { return is_signed ? DType::kI8 : DType::kU8; }
  bool operator==(const QScheme&) const = default;
};

// Throws std::invalid_argument unless 2 <= bits <= 8, symmetric implies signed, narrow_range
// implies symmetric, group_size is above 0 with kGroup and 0 elsewhere, and dynamic goes with
// kToken always and with kGroup at will.
void validate(const QScheme& scheme);

// Scales of a tensor whose first dimension is `rows`, of `row_size` elements each. A row of at most
// group_size elements is one group. Throws std::invalid_argument where groups do not divide rows.
std::int64_t scale_count(const QScheme& scheme, std::int64_t rows, std::int64_t row_size);

// "int8 symmetric, per channel".
std::string to_string(const QScheme& scheme);

}  // namespace steelyard::observers
