#include "steelyard/framework/data/images/augmentations.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/data/images/effects.h"
#include "steelyard/framework/data/streams.h"

namespace steelyard {
namespace {

double between(Rng& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

Image jittered(const Image& image, const Augmentation& augmentation, Rng& random) {
  const auto factor = [&](double range) {
    return between(random, std::max(0.0, 1 - range), 1 + range);
  };
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  const std::array<double, 4> amounts{
      factor(augmentation.brightness), factor(augmentation.contrast),
      factor(augmentation.saturation), between(random, -augmentation.hue, augmentation.hue)};
  const std::array effects{with_brightness, with_contrast, with_saturation, with_hue};
  Image out = image;
  for (const std::size_t i : order) out = effects[i](out, amounts[i]);
  return out;
}

Image turned(const Image& image, const Augmentation& augmentation, Rng& random) {
  const double most = augmentation.rotation_degrees;
  return rotated(image, between(random, -most, most));
}

// A change of TrivialAugment: `weakest` to `strongest` in kStrengths steps; about 1 where factors
// are drawn, with a random sign where it has one.
struct TrivialChange {
  Image (*apply)(const Image&, double);
  double weakest, strongest;
  bool has_sign = false;
  double centre = 0;
};
constexpr int kStrengths = 31;

Image same(const Image& image, double) { return image; }

constexpr std::array kTrivialChanges{
    TrivialChange{same, 0, 0},
    TrivialChange{sheared_x, 0, 0.99, true},
    TrivialChange{sheared_y, 0, 0.99, true},
    TrivialChange{translated_x, 0, 32, true},
    TrivialChange{translated_y, 0, 32, true},
    TrivialChange{rotated, 0, 135, true},
    TrivialChange{with_brightness, 0, 0.99, true, 1},
    TrivialChange{with_saturation, 0, 0.99, true, 1},
    TrivialChange{with_contrast, 0, 0.99, true, 1},
    TrivialChange{with_sharpness, 0, 0.99, true, 1},
    TrivialChange{posterized, 8, 2},
    TrivialChange{solarized, 255, 0},
    TrivialChange{with_auto_contrast, 0, 0},
    TrivialChange{equalized, 0, 0},
};

Image trivially_augmented(const Image& image, const Augmentation&, Rng& random) {
  const TrivialChange& change = kTrivialChanges[random.below(kTrivialChanges.size())];
  const auto strength = static_cast<double>(random.below(kStrengths)) / (kStrengths - 1);
  double amount = change.weakest + strength * (change.strongest - change.weakest);
  // Whole bits and pixels.
  if (change.apply == posterized) amount = std::round(amount);
  if (change.apply == translated_x || change.apply == translated_y) amount = std::trunc(amount);
  if (change.has_sign && random.below(2) == 1) amount = -amount;
  return change.apply(image, change.centre + amount);
}

// In the order in which they are applied.
struct ByteChange {
  bool Augmentation::*on;
  std::uint64_t stream;
  Image (*apply)(const Image&, const Augmentation&, Rng&);
};
constexpr std::array kByteChanges{
    ByteChange{&Augmentation::rotation, kRotationStream, turned},
    ByteChange{&Augmentation::trivial_augment, kTrivialAugmentStream, trivially_augmented},
    ByteChange{&Augmentation::colour_jitter, kColourJitterStream, jittered},
};

// Marsaglia and Tsang, A simple method for generating gamma variables, 2000; below 1 by their note.
double gamma(double alpha, Rng& random) {
  if (alpha < 1) {
    const double power = std::pow(1 - random.uniform(), 1 / alpha);
    return gamma(alpha + 1, random) * power;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal(), v = std::pow(1 + c * x, 3);
    const double u = 1 - random.uniform();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double beta(double alpha, Rng& random) {
  const double a = gamma(alpha, random), b = gamma(alpha, random);
  return a + b > 0 ? a / (a + b) : 0.5;
}

}  // namespace

Rng numbers_of(std::uint64_t stream, const SampleKey& key) {
  constexpr std::uint64_t kWords = 64;  // that a change may draw for one sample
  return Rng({key.seed, stream + static_cast<std::uint64_t>(key.epoch),
              static_cast<std::uint64_t>(key.sample) * kWords});
}

Image augmented(Image image, const Augmentation& augmentation, const SampleKey& key) {
  for (const ByteChange& change : kByteChanges) {
    if (!(augmentation.*change.on)) continue;
    Rng random = numbers_of(change.stream, key);
    image = change.apply(image, augmentation, random);
  }
  return image;
}

void erase(const Augmentation& augmentation, const SampleKey& key, std::int64_t height,
           std::int64_t width, std::int64_t channels, float* image) {
  constexpr int kTries = 10;
  Rng random = numbers_of(kErasingStream, key);
  if (random.uniform() >= augmentation.erasing_probability) return;
  const auto& area = augmentation.erasing_area;
  const auto& ratio = augmentation.erasing_ratio;
  const auto all = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double part = all * between(random, area[0], area[1]);
    const double shape = std::exp(between(random, std::log(ratio[0]), std::log(ratio[1])));
    const auto rows = static_cast<std::int64_t>(std::nearbyint(std::sqrt(part * shape)));
    const auto columns = static_cast<std::int64_t>(std::nearbyint(std::sqrt(part / shape)));
    if (rows < 1 || columns < 1 || rows >= height || columns >= width) continue;
    const auto place = [&](std::int64_t room) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(room) + 1));
    };
    const std::int64_t top = place(height - rows), left = place(width - columns);
    for (std::int64_t y = top; y < top + rows; ++y) {
      std::fill_n(image + (y * width + left) * channels, columns * channels, 0.0F);
    }
    return;
  }
}

Mix draw_mix(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
             std::int64_t batch, std::int64_t height, std::int64_t width) {
  constexpr std::uint64_t kWordsOfABatch = 1024;
  Rng random({seed, kMixStream + static_cast<std::uint64_t>(epoch),
              static_cast<std::uint64_t>(batch) * kWordsOfABatch});
  const bool cuts = augmentation.cutmix && (!augmentation.mixup || random.below(2) == 1);
  Mix mix{beta(cuts ? augmentation.cutmix_alpha : augmentation.mixup_alpha, random)};
  if (!cuts) return mix;
  // About a random place, what lies outside cut off: the share is that of the pixels.
  const double half = 0.5 * std::sqrt(1 - mix.share);
  const auto extent = [&](std::int64_t size) -> std::array<std::int64_t, 2> {
    const auto centre = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size)));
    const auto reach = static_cast<std::int64_t>(half * static_cast<double>(size));
    const std::int64_t begin = std::max<std::int64_t>(centre - reach, 0);
    return {begin, std::min(centre + reach, size) - begin};
  };
  const auto [left, columns] = extent(width);
  const auto [top, rows] = extent(height);
  mix.box = {top, left, rows, columns};
  mix.share = 1 - static_cast<double>(rows * columns) / static_cast<double>(height * width);
  return mix;
}

void mix_into(const Mix& mix, const float* other, std::int64_t width, std::int64_t channels,
              std::int64_t values, float* image) {
  const auto [top, left, rows, columns] = mix.box;
  if (rows == 0 && columns == 0) {
    for (std::int64_t i = 0; i < values; ++i) {
      const double own = mix.share * static_cast<double>(image[i]);
      image[i] = static_cast<float>(own + (1 - mix.share) * static_cast<double>(other[i]));
    }
    return;
  }
  for (std::int64_t y = top; y < top + rows; ++y) {
    const std::int64_t first = (y * width + left) * channels;
    std::copy_n(other + first, columns * channels, image + first);
  }
}

}  // namespace steelyard
