// What tests of plans begin with.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "steelyard/kernels/quant_plan/quant_plan.h"

namespace steelyard::kernels::test {

// One scale, 8-bit unsigned codes.
inline QuantDescriptor fake_quantize(std::vector<std::int64_t> shape) {
  QuantDescriptor d;
  d.shape = std::move(shape);
  return d;
}

inline std::vector<float> wave(std::int64_t n, float amplitude, float shift = 0) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = amplitude * std::sin(static_cast<float>(i) * 0.7F) + shift;
  }
  return x;
}

}  // namespace steelyard::kernels::test
