// The weights of an exported language model beside those of its run.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "steelyard/framework/tensor/tensor.h"

namespace steelyard {

struct WeightComparison {
  std::int64_t values = 0, differing_values = 0;  // of the weights that are codes in the file
  std::int64_t others = 0, differing_others = 0;  // of all other parameters
};

// Values f32, of which some may differ in their bits.
inline std::int64_t differing_values(const Tensor& a, const Tensor& b) {
  const auto x = a.span<float>(), y = b.span<float>();
  std::int64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    count += static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(x[i]) !=
                                       std::bit_cast<std::uint32_t>(y[i]));
  }
  return count;
}

// How many of the tokens have a logit [..., vocabulary] of other bits.
inline std::int64_t differing_tokens(const Tensor& a, const Tensor& b) {
  const std::int64_t vocabulary = a.dim(-1);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < a.size(); i += vocabulary) {
    const auto bytes = static_cast<std::size_t>(vocabulary) * sizeof(float);
    count += static_cast<std::int64_t>(
        std::memcmp(a.data<float>() + i, b.data<float>() + i, bytes) != 0);
  }
  return count;
}

}  // namespace steelyard
