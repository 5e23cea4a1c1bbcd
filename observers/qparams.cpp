#include "observers/qparams.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace steelyard::observers {
namespace {

// The largest |q - z| a code range can give.
double largest_operand(const kernels::CodeRange& range, double zero_point) {
  return std::max(zero_point - range.qmin, range.qmax - zero_point);
}

float bounded_scale(double scale, double largest) {
  const double ceiling = std::numeric_limits<float>::max() / largest;
  const double floor = std::numeric_limits<float>::min();
  float rounded = static_cast<float>(std::clamp(scale, floor, ceiling));
  // Rounding up to float must not carry the largest code past FLT_MAX.
  while (static_cast<double>(rounded) > ceiling) rounded = std::nextafter(rounded, 0.0F);
  return rounded;
}

}  // namespace

QParams choose_qparams(const Range& range, const QScheme& scheme) {
  const kernels::CodeRange codes = scheme.code_range();
  QParams params;
  if (range.empty() || (range.lo == 0 && range.hi == 0)) {
    params.zero_range = true;
    params.zero_point = std::clamp(0, codes.qmin, codes.qmax);
    return params;
  }
  if (!std::isfinite(range.lo) || !std::isfinite(range.hi)) {
    throw std::invalid_argument("[qparams] expected a finite range, got [" +
                                std::to_string(range.lo) + ", " + std::to_string(range.hi) + "]");
  }
  if (scheme.symmetric) {
    const double amax = std::max(std::abs(range.lo), std::abs(range.hi));
    params.scale = bounded_scale(amax / codes.qmax, largest_operand(codes, 0));
    return params;
  }
  const double lo = std::min(range.lo, 0.0);
  const double hi = std::max(range.hi, 0.0);
  const double scale = (hi - lo) / (codes.qmax - codes.qmin);
  const double zero_point = kernels::clamp_keeping_nan<double>(
      kernels::round_half_even(codes.qmin - lo / scale), codes.qmin, codes.qmax);
  params.zero_point = static_cast<std::int32_t>(zero_point);
  params.scale = bounded_scale(scale, largest_operand(codes, zero_point));
  return params;
}

void validate(const QParams& params, const QScheme& scheme, const std::string& quantizer) {
  const kernels::CodeRange codes = scheme.code_range();
  if (!std::isfinite(params.scale) || !(params.scale > 0)) {
    throw std::invalid_argument("[" + quantizer + "] expected a finite scale > 0, got " +
                                std::to_string(params.scale));
  }
  const bool fixed_zero = !scheme.symmetric || params.zero_point == 0;
  if (params.zero_point < codes.qmin || params.zero_point > codes.qmax || !fixed_zero) {
    throw std::invalid_argument("[" + quantizer + "] expected a zero point " +
                                (scheme.symmetric ? std::string("of 0")
                                                  : "in [" + std::to_string(codes.qmin) + ", " +
                                                        std::to_string(codes.qmax) + "]") +
                                ", got " + std::to_string(params.zero_point));
  }
}

}  // namespace steelyard::observers
