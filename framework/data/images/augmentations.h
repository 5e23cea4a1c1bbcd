// Random changes of training images.
//
// What is random about a sample is a function of (seed, epoch, sample) and of the change's own
// stream: to switch another change on or off does not alter it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "steelyard/framework/data/images/image.h"
#include "steelyard/framework/tensor/rng.h"

namespace steelyard {

// Random changes of images [H, W, C], keyed by (seed, epoch, sample).
struct Augmentation {
  bool random_crop = false;       // pad with zeros on every side, then crop at a random place
  std::int64_t crop_padding = 2;  // pixels
  bool flip = false;              // mirror left to right with probability 1/2
  bool vertical_flip = false;     // mirror top to bottom with probability 1/2
  bool resized_crop = false;      // a random part instead of the centre, of a source that draws()

  // Changes of bytes, before random_crop and the flips.
  bool colour_jitter = false;    // factors and turns of the four, in random order
  bool rotation = false;         // by an angle of at most `rotation_degrees`
  bool trivial_augment = false;  // one of 14 changes of random strength (arXiv:2103.10158, wide)
  // Factors lie in [max(0, 1 - x), 1 + x], turns of the hue in [-hue, hue].
  double brightness = 0.4, contrast = 0.4, saturation = 0.4, hue = 0.1;
  double rotation_degrees = 15;

  // After normalization: a random rectangle becomes 0, the mean (arXiv:1708.04896).
  bool erasing = false;
  double erasing_probability = 0.5;
  std::array<double, 2> erasing_area = {0.02, 0.33};  // of the image
  std::array<double, 2> erasing_ratio = {0.3, 3.3};   // height / width

  // Changes of a batch: each sample is mixed with the one before it, and so are their targets. With
  // both on, each batch gets one of them.
  bool mixup = false;                          // weighted sum (arXiv:1710.09412)
  bool cutmix = false;                         // a rectangle of the other (arXiv:1905.04899)
  double mixup_alpha = 0.2, cutmix_alpha = 1;  // shares are drawn from Beta(alpha, alpha)

  bool places() const { return random_crop || flip || vertical_flip; }
  bool changes_bytes() const { return colour_jitter || rotation || trivial_augment; }
  bool mixes() const { return mixup || cutmix; }
};

// What random numbers are drawn for: a sample of an epoch.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::int64_t sample = 0;
};

// The numbers that a change draws for a sample, at most 64 words.
Rng numbers_of(std::uint64_t stream, const SampleKey& key);

// The changes of bytes that are switched on, in the order of their table.
Image augmented(Image image, const Augmentation& augmentation, const SampleKey& key);

// Erases a rectangle of f32 [height, width, channels], or does not.
void erase(const Augmentation& augmentation, const SampleKey& key, std::int64_t height,
           std::int64_t width, std::int64_t channels, float* image);

// How the samples of a batch are mixed with those before them: a box of [height, width] is the
// other's, or, without one, all of it by 1 - share. `share` is that of the sample itself.
struct Mix {
  double share = 1;
  std::array<std::int64_t, 4> box = {};  // top, left, height, width
};
Mix draw_mix(const Augmentation& augmentation, std::uint64_t seed, std::int64_t epoch,
             std::int64_t batch, std::int64_t height, std::int64_t width);
// image = the mix of both, of `values` = height * width * channels.
void mix_into(const Mix& mix, const float* other, std::int64_t width, std::int64_t channels,
              std::int64_t values, float* image);

}  // namespace steelyard
