// What a quantizer's grid looks like: plain data.
#pragma once

#include <cstdint>
#include <string>

#include "framework/dtype.h"
#include "kernels/affine.h"

namespace steelyard::observers {

// How many scales a tensor has: one, or one per slice of an axis (the words of compressed-tensors).
enum class Strategy { kTensor, kChannel };

struct QScheme {
  int bits = 8;
  bool is_signed = true;
  bool symmetric = true;
  // Signed symmetric codes in [-qmax, qmax] instead of [-qmax - 1, qmax].
  bool narrow_range = true;
  Strategy strategy = Strategy::kTensor;

  // The smallest and largest code: unsigned [0, 2^bits - 1], signed [-2^(bits-1), 2^(bits-1) - 1].
  kernels::CodeRange code_range() const;
  // i8 or u8.
  DType code_dtype() const { return is_signed ? DType::kI8 : DType::kU8; }
  bool operator==(const QScheme&) const = default;
};

// Throws std::invalid_argument unless 2 <= bits <= 8, symmetric implies signed, and narrow_range
// implies symmetric.
void validate(const QScheme& scheme);

// "int8 symmetric, per channel".
std::string to_string(const QScheme& scheme);

}  // namespace steelyard::observers
