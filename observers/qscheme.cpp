#include "observers/qscheme.h"

#include <stdexcept>

namespace steelyard::observers {

kernels::CodeRange QScheme::code_range() const {
  if (!is_signed) return {0, (1 << bits) - 1};
  const std::int32_t qmax = (1 << (bits - 1)) - 1;
  return {narrow_range ? -qmax : -qmax - 1, qmax};
}

void validate(const QScheme& scheme) {
  if (scheme.bits < 2 || scheme.bits > 8) {
    throw std::invalid_argument("[qscheme] expected 2 to 8 bits, got " +
                                std::to_string(scheme.bits));
  }
  if (scheme.symmetric && !scheme.is_signed) {
    throw std::invalid_argument("[qscheme] a symmetric scheme needs signed codes");
  }
  if (scheme.narrow_range && !scheme.symmetric) {
    throw std::invalid_argument("[qscheme] a narrow range needs a symmetric scheme");
  }
}

std::string to_string(const QScheme& scheme) {
  return std::string(scheme.is_signed ? "int" : "uint") + std::to_string(scheme.bits) +
         (scheme.symmetric ? " symmetric" : " affine") +
         (scheme.strategy == Strategy::kChannel ? ", per channel" : ", per tensor");
}

}  // namespace steelyard::observers
