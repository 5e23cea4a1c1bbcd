// How many products an integer sum may have.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace steelyard::kernels {

// How many products of at most `largest` int32 holds the sum of.
inline constexpr std::int64_t most_terms(std::int64_t largest) {
  return std::numeric_limits<std::int32_t>::max() / largest;
}

// Throws std::invalid_argument where partial sums of `terms` products of at most `largest` could
// leave int32.
inline void check_terms(const char* op, std::int64_t terms, std::int64_t largest) {
  const std::int64_t most = most_terms(largest);
  if (terms <= most) return;
  throw std::invalid_argument(std::string("[") + op + "] expected at most " + std::to_string(most) +
                              " products per sum (int32), got " + std::to_string(terms));
}

}  // namespace steelyard::kernels
