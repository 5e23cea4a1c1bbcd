// The values of inputs as the CPU's gradients of weights read them, some at a time. Private to this
// family.
#pragma once

#include <algorithm>
#include <cstdint>

#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// Floats, for products of bf16 rounded to it.
struct Floats {
  const float* x;
  bool rounds;

  void read(std::int64_t first, std::int64_t n, float* out) const {
    const float* const from = x + first;
    if (!rounds) {
      std::copy_n(from, n, out);
      return;
    }
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) out[i] = widen(narrow<BFloat16>(from[i]));
  }
};

// Codes less their zero point, which bf16 holds, too.
template <typename Code>
struct Codes {
  const Code* x;
  std::int32_t zero_point;

  void read(std::int64_t first, std::int64_t n, float* out) const {
    const Code* const from = x + first;
    const std::int32_t zero = zero_point;
    STEELYARD_VECTORIZE
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(from[i] - zero);
  }
};

}  // namespace steelyard::kernels
