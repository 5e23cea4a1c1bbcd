#include "steelyard/observers/qscheme.h"

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
  if ((scheme.group_size > 0) != (scheme.strategy == Strategy::kGroup) || scheme.group_size < 0) {
    throw std::invalid_argument("[qscheme] expected a group size above 0 with groups, 0 elsewhere");
  }
  if (scheme.strategy == Strategy::kToken && !scheme.dynamic) {
    throw std::invalid_argument("[qscheme] scales per token need dynamic: true");
  }
  if (scheme.dynamic && scheme.strategy != Strategy::kToken &&
      scheme.strategy != Strategy::kGroup) {
    throw std::invalid_argument("[qscheme] dynamic needs the strategy token or group");
  }
}

std::int64_t scale_count(const QScheme& scheme, std::int64_t rows, std::int64_t row_size) {
  switch (scheme.strategy) {
    case Strategy::kTensor:
      return 1;
    case Strategy::kChannel:
    case Strategy::kToken:
      return rows;
    case Strategy::kGroup:
      break;
  }
  if (row_size <= scheme.group_size) return rows;
  if (row_size % scheme.group_size != 0) {
    throw std::invalid_argument("groups of " + std::to_string(scheme.group_size) +
                                " do not divide the " + std::to_string(row_size) +
                                " weights of an output");
  }
  return rows * (row_size / scheme.group_size);
}

std::string to_string(const QScheme& scheme) {
  std::string strategy = ", per tensor";
  if (scheme.strategy == Strategy::kChannel) strategy = ", per channel";
  if (scheme.strategy == Strategy::kGroup) {
    strategy = ", groups of " + std::to_string(scheme.group_size);
  }
  if (scheme.strategy == Strategy::kToken) strategy = ", per token";
  if (scheme.dynamic) strategy += ", dynamic";
  return std::string(scheme.is_signed ? "int" : "uint") + std::to_string(scheme.bits) +
         (scheme.symmetric ? " symmetric" : " affine") + strategy;
}

}  // namespace steelyard::observers
