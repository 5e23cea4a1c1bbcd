#include "steelyard/observers/qparams.h"

#include <cfloat>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "steelyard/kernels/qparams.h"

namespace steelyard::observers {
QParams choose_qparams(const Range& range, const QScheme& scheme) {
  const kernels::CodeRange codes = scheme.code_range();
  if (!range.empty() && (!std::isfinite(range.lo) || !std::isfinite(range.hi))) {
    throw std::invalid_argument("[qparams] expected a finite range, got [" +
                                std::to_string(range.lo) + ", " + std::to_string(range.hi) + "]");
  }
  const auto chosen = kernels::qparams_of_range<float>(range.lo, range.hi, codes, scheme.symmetric);
  return {chosen.scale, chosen.zero_point, kernels::is_zero_range(range.lo, range.hi)};
}

void validate(const QParams& params, const QScheme& scheme, const std::string& quantizer) {
  const kernels::CodeRange codes = scheme.code_range();
  const bool fixed_zero = !scheme.symmetric || params.zero_point == 0;
  if (params.zero_point < codes.qmin || params.zero_point > codes.qmax || !fixed_zero) {
    throw std::invalid_argument("[" + quantizer + "] expected a zero point " +
                                (scheme.symmetric ? std::string("of 0")
                                                  : "in [" + std::to_string(codes.qmin) + ", " +
                                                        std::to_string(codes.qmax) + "]") +
                                ", got " + std::to_string(params.zero_point));
  }
  const double reach = kernels::largest_operand(codes, params.zero_point);
  if (!(params.scale >= FLT_MIN) || !(static_cast<double>(params.scale) * reach <= FLT_MAX)) {
    std::ostringstream message;
    message << "[" << quantizer << "] expected a scale of " << FLT_MIN
            << " (the smallest normal float) to " << FLT_MAX / reach
            << " (no code beyond the largest), got " << params.scale;
    throw std::invalid_argument(message.str());
  }
}

}  // namespace steelyard::observers
