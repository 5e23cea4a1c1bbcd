// The one place that turns a range into a scale and a zero point (NUMERICS: ranges, floors).
#pragma once

#include <cstdint>
#include <limits>

#include "steelyard/observers/qscheme.h"

namespace steelyard::observers {

// Extremes of the values a quantizer must represent; lo > hi means that nothing was seen.
struct Range {
  double lo = std::numeric_limits<double>::infinity();
  double hi = -std::numeric_limits<double>::infinity();
  bool empty() const { return !(lo <= hi); }
  bool operator==(const Range&) const = default;
};

struct QParams {
  float scale = 1.0F;
  std::int32_t zero_point = 0;
  bool zero_range = false;  // the range was [0, 0] or empty: scale 1 by definition
  bool operator==(const QParams&) const = default;
};

// Symmetric: scale = max(|lo|, |hi|) / qmax, zero point 0. Affine: the range is extended to hold 0,
// scale = (hi - lo) / (qmax - qmin), zero point = clamp(rint(qmin - lo / scale)). Computed in
// double and rounded to float; the scale is kept within the smallest normal float and FLT_MAX /
// max|q - z|. A zero or empty range gives scale 1 and the code of 0. Throws std::invalid_argument
// on a non-finite range.
QParams choose_qparams(const Range& range, const QScheme& scheme);

// Throws std::invalid_argument naming the quantizer unless the scale is a normal float > 0 with
// which every code stands for a finite value, and the zero point lies in the code range (and is 0
// for a symmetric scheme).
void validate(const QParams& params, const QScheme& scheme, const std::string& quantizer);

}  // namespace steelyard::observers
