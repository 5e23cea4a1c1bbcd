// The quantization scheme of a quantizer, as plain data, and the scale and zero point for a range
// of values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "steelyard/framework/tensor/dtype.h"
#include "steelyard/kernels/granularity.h"
#include "steelyard/kernels/qparams.h"

namespace steelyard::observers {

using QParams = kernels::QParams<float>;

struct QScheme {
  int bits = 8;
  bool is_signed = true;
  bool symmetric = true;
  // Signed symmetric codes in [-qmax, qmax] instead of [-qmax - 1, qmax].
  bool narrow_range = true;
  // One scale, or one per slice of the first axis, per group of such a slice, per row of the last
  // axis, or per block of rows and columns.
  kernels::Granularity granularity = kernels::Granularity::kTensor;
  std::int64_t group_size = 0;  // with kGroup
  // Scales and zero points come from the values themselves, in every pass: kToken, or kGroup of
  // rows of activations, or kBlock.
  bool dynamic = false;
  std::array<std::int64_t, 2> block{0, 0};  // rows and columns, with kBlock

  // The smallest and largest code: unsigned [0, 2^bits - 1], signed [-2^(bits-1), 2^(bits-1) - 1].
  kernels::CodeRange code_range() const;
  // More codes than a byte has.
  bool wide() const { return bits > 8; }
  // i8 or u8, or i32 for wide ones.
  DType code_dtype() const {
    if (wide()) return DType::kI32;
    return is_signed ? DType::kI8 : DType::kU8;
  }
  auto operator<=>(const QScheme&) const = default;
};

// Throws std::invalid_argument unless 2 <= bits <= 16 (8 where dynamic), symmetric implies signed,
// narrow_range implies symmetric, group_size and block are above 0 with kGroup and kBlock and 0
// elsewhere, and dynamic goes with kToken and kBlock always and with kGroup at will.
void validate(const QScheme& scheme);

// Scales of a tensor whose first dimension is `rows`, of `row_size` elements each. A row of at most
// group_size elements (columns of a block) is one group; the last rows of blocks may be fewer.
// Throws std::invalid_argument where groups do not divide rows.
std::int64_t scale_count(const QScheme& scheme, std::int64_t rows, std::int64_t row_size);

// "int8 symmetric, per channel", "uint4 affine, groups of 32, dynamic": equal for equal schemes
// alone.
std::string to_string(const QScheme& scheme);
// The scheme of such a text. Throws std::invalid_argument for every other.
QScheme parse_qscheme(std::string_view text);

// Extremes of the values a quantizer must represent; lo > hi means that nothing was seen.
struct Range {
  double lo = std::numeric_limits<double>::infinity();
  double hi = -std::numeric_limits<double>::infinity();
  bool empty() const { return !(lo <= hi); }
  bool operator==(const Range&) const = default;
};

// The scale and zero point of a range: kernels/qparams.h, qparams_of_range(). An empty range is a
// zero range. Throws std::invalid_argument on a non-finite range.
QParams choose_qparams(const Range& range, const QScheme& scheme);

// Throws std::invalid_argument naming the quantizer unless the scale is a normal float > 0 with
// which every code stands for a finite value, and the zero point lies in the code range (and is 0
// for a symmetric scheme).
void validate(const QParams& params, const QScheme& scheme, const std::string& quantizer);

}  // namespace steelyard::observers

template <>
struct std::hash<steelyard::observers::QScheme> {
  std::size_t operator()(const steelyard::observers::QScheme& scheme) const {
    return std::hash<std::string>()(steelyard::observers::to_string(scheme));
  }
};
