// A small dataset for the examples: 12x12 noisy images of four kinds of bars, which a network can
// learn.
#pragma once

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/tensor/rng.h"

inline steelyard::Dataset made_up_images(std::int64_t count, std::uint64_t seed) {
  using namespace steelyard;
  constexpr std::int64_t kSide = 12;
  Rng rng(seed);
  Dataset data{Tensor::empty({count, kSide, kSide, 1}, DType::kU8),
               Tensor::empty({count}, DType::kI64), 4};
  std::uint8_t* pixel = data.inputs.data<std::uint8_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int64_t>(rng.below(4));
    const auto at = static_cast<std::int64_t>(rng.below(kSide - 2)) + 1;
    data.targets.data<std::int64_t>()[i] = label;
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        const bool on = label == 0   ? x == at
                        : label == 1 ? y == at
                        : label == 2 ? (x + y) % kSide == at
                                     : (x - y + kSide) % kSide == at;
        *pixel++ = static_cast<std::uint8_t>(rng.below(90) + (on ? 160 : 0));
      }
    }
  }
  return data;
}
