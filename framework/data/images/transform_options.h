// What is done to images before they are samples.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "steelyard/framework/tensor/words.h"

namespace steelyard {

enum class Interpolation { kBilinear, kBicubic };

inline constexpr Word<Interpolation> kInterpolationWords[] = {
    {Interpolation::kBilinear, "bilinear"},
    {Interpolation::kBicubic, "bicubic"},
};
static_assert(is_complete<Interpolation>(kInterpolationWords, Interpolation::kBicubic));
constexpr std::span<const Word<Interpolation>> words_of(Interpolation) {
  return kInterpolationWords;
}

// In this order. Without `resize` images keep their size.
struct ImageTransforms {
  std::optional<std::array<std::int64_t, 2>> resize = {};  // to [height, width]
  std::optional<std::int64_t> resize_shorter = {};  // the shorter side; the longer in proportion
  std::optional<std::array<std::int64_t, 2>> centre_crop = {};  // [height, width]
  Interpolation interpolation = Interpolation::kBilinear;
  bool grey = false;  // 1 channel
  // Limits of the random part that is taken in place of all of the above, and resized to the same
  // size: the least and the largest share of the image's area, and width / height.
  std::vector<double> random_area = {0.08, 1.0};
  std::vector<double> random_ratio = {3.0 / 4.0, 4.0 / 3.0};

  std::int64_t channels() const { return grey ? 1 : 3; }
  // [height, width] of every result; nothing where that is the image's own.
  std::optional<std::array<std::int64_t, 2>> size() const {
    return centre_crop ? centre_crop : resize;
  }
};

}  // namespace steelyard
