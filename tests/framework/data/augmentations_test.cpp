// Random changes of samples: what they draw, and that they depend on nothing else.
#include "steelyard/framework/data/images/augmentations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/tensor/error.h"
#include "tests/support/tensors.h"

namespace steelyard {
namespace {

using testing::values;

Image noise(std::int64_t height, std::int64_t width, std::uint64_t seed) {
  Image image{height, width, 3, {}};
  Rng random(seed);
  for (std::int64_t i = 0; i < height * width * 3; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
  }
  return image;
}

TEST(Augmentations, DependOnSeedEpochAndSampleOnly) {
  const Image image = noise(9, 8, 1);
  for (bool Augmentation::*on :
       {&Augmentation::colour_jitter, &Augmentation::rotation, &Augmentation::trivial_augment}) {
    Augmentation augmentation;
    augmentation.*on = true;
    const auto different = [&](SampleKey a, SampleKey b) {
      int count = 0;
      for (std::int64_t i = 0; i < 20; ++i) {
        a.sample += 7;
        b.sample += 7;
        EXPECT_EQ(augmented(image, augmentation, a), augmented(image, augmentation, a));
        count += augmented(image, augmentation, a) == augmented(image, augmentation, b) ? 0 : 1;
      }
      return count;
    };
    EXPECT_EQ(different({1, 2, 3}, {1, 2, 3}), 0);
    EXPECT_GT(different({1, 2, 3}, {1, 2, 4}), 10);
    EXPECT_GT(different({1, 2, 3}, {1, 3, 3}), 10);
    EXPECT_GT(different({1, 2, 3}, {2, 2, 3}), 10);
  }
}

TEST(Augmentations, StrengthsOfZeroChangeNothing) {
  const Image image = noise(9, 8, 1);
  Augmentation augmentation;
  augmentation.colour_jitter = augmentation.rotation = true;
  augmentation.brightness = augmentation.contrast = augmentation.saturation = 0;
  augmentation.hue = augmentation.rotation_degrees = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    const Image out = augmented(image, augmentation, {1, 0, i});
    for (std::size_t p = 0; p < image.pixels.size(); ++p) {
      // A turn of 0 goes through 8 bits of hue and saturation.
      EXPECT_NEAR(out.pixels[p], image.pixels[p], 6);
    }
  }
}

TEST(Augmentations, ErasingFollowsItsLimits) {
  Augmentation augmentation;
  augmentation.erasing_probability = 0.75;
  augmentation.erasing_area = {0.1, 0.2};
  augmentation.erasing_ratio = {0.5, 2};
  int erased = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    std::vector<float> image(20 * 30 * 2, 1.0F);
    erase(augmentation, {3, 1, i}, 20, 30, 2, image.data());
    std::int64_t top = 20, bottom = -1, left = 30, right = -1, zeros = 0;
    for (std::int64_t at = 0; at < 600; ++at) {
      if (image[static_cast<std::size_t>(2 * at)] != 0) continue;
      ++zeros;
      top = std::min(top, at / 30), bottom = std::max(bottom, at / 30);
      left = std::min(left, at % 30), right = std::max(right, at % 30);
    }
    if (zeros == 0) continue;
    ++erased;
    const std::int64_t height = bottom - top + 1, width = right - left + 1;
    EXPECT_EQ(zeros, height * width) << "a rectangle";
    EXPECT_NEAR(static_cast<double>(zeros) / 600, 0.15, 0.07);
    EXPECT_NEAR(std::log(static_cast<double>(height) / static_cast<double>(width)), 0,
                std::log(2) + 0.2);
  }
  EXPECT_NEAR(erased / 400.0, 0.75, 0.07);
}

// Shares follow Beta(alpha, alpha): mean 1/2, variance 1 / (4 (2 alpha + 1)).
TEST(Augmentations, SharesOfMixupAndCutmix) {
  for (const double alpha : {0.2, 1.0, 3.0}) {
    Augmentation augmentation;
    augmentation.mixup = true;
    augmentation.mixup_alpha = alpha;
    double sum = 0, squares = 0;
    constexpr int kBatches = 4000;
    for (int b = 0; b < kBatches; ++b) {
      const double share = draw_mix(augmentation, 5, 0, b, 32, 32).share;
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      sum += share;
      squares += share * share;
    }
    const double mean = sum / kBatches, variance = squares / kBatches - mean * mean;
    EXPECT_NEAR(mean, 0.5, 0.03) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
  Augmentation both;
  both.mixup = both.cutmix = true;
  int boxes = 0;
  for (int b = 0; b < 400; ++b) {
    const Mix mix = draw_mix(both, 5, 1, b, 20, 30);
    const auto [top, left, height, width] = mix.box;
    if (height * width == 0) continue;
    ++boxes;
    EXPECT_TRUE(top >= 0 && left >= 0 && top + height <= 20 && left + width <= 30);
    EXPECT_DOUBLE_EQ(mix.share, 1 - static_cast<double>(height * width) / 600);
  }
  EXPECT_NEAR(boxes / 400.0, 0.5, 0.12);
}

// Images of one value each: inputs and targets show the shares.
TEST(Augmentations, MixedSamplesHaveMixedTargets) {
  Dataset dataset{Tensor::zeros({5, 4, 4, 1}, DType::kU8),
                  Tensor::from<std::int64_t>({0, 1, 2, 1, 0}, {5}), 3};
  for (std::int64_t i = 0; i < 5; ++i) {
    std::fill_n(dataset.inputs.data<std::uint8_t>() + i * 16, 16,
                static_cast<std::uint8_t>(51 * i));
  }
  LoaderOptions options{.batch_size = 5, .normalization = {}, .augment = {}};
  const auto label = [&](std::int64_t i) { return dataset.targets.data<std::int64_t>()[i]; };
  for (const bool cuts : {false, true}) {
    options.augment.mixup = !cuts;
    options.augment.cutmix = cuts;
    for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
      const Batch batch = make_batch(dataset, options, epoch, 0);
      const Mix mix = draw_mix(options.augment, 0, epoch, 0, 4, 4);
      EXPECT_EQ(batch.targets.shape(), (Shape{5, 3}));
      for (std::int64_t i = 0; i < 5; ++i) {
        const std::int64_t other = (i + 4) % 5;
        double mean = 0;
        for (std::int64_t p = 0; p < 16; ++p)
          mean += values(batch.inputs)[static_cast<std::size_t>(i * 16 + p)] / 16;
        const double expected =
            mix.share * static_cast<double>(i) + (1 - mix.share) * static_cast<double>(other);
        EXPECT_NEAR(mean, 0.2 * expected, 1e-6);
        for (std::int64_t c = 0; c < 3; ++c) {
          const double chance =
              (label(i) == c ? mix.share : 0) + (label(other) == c ? 1 - mix.share : 0);
          EXPECT_NEAR(values(batch.targets)[static_cast<std::size_t>(3 * i + c)], chance, 1e-6);
        }
      }
    }
  }
}

TEST(Augmentations, ADatasetHasATargetForEachSample) {
  const Dataset few{Tensor::zeros({5, 4, 4, 1}, DType::kU8), Tensor::zeros({3}, DType::kI64), 2};
  EXPECT_THROW(validate_options(few, {}), InputError);
}

TEST(Augmentations, WhatDoesNotFitIsRefused) {
  const Dataset flat{Tensor::zeros({4, 6}), Tensor::zeros({4}, DType::kI64), 2};
  const Dataset numbers{Tensor::zeros({4, 3, 3, 1}), Tensor::zeros({4, 1}), 0};
  const auto error = [](const Dataset& dataset, bool Augmentation::*on) -> std::string {
    LoaderOptions options{.normalization = {}, .augment = {}};
    options.augment.*on = true;
    try {
      validate_options(dataset, options);
    } catch (const InputError& problem) {
      return problem.what();
    }
    return "nothing";
  };
  EXPECT_EQ(error(flat, &Augmentation::mixup), "nothing");
  EXPECT_EQ(error(flat, &Augmentation::cutmix), "expected images [H, W, C] to augment, got [6]");
  EXPECT_EQ(error(numbers, &Augmentation::rotation),
            "colour_jitter, rotation and trivial_augment need images of bytes with 1 "
            "or 3 channels");
  EXPECT_EQ(error(numbers, &Augmentation::mixup),
            "mixup and cutmix need classes or labels as targets");
  const Dataset texts{Tensor::zeros({4, 3, 3, 1}), Tensor::zeros({4, 2}, DType::kI64), 3};
  for (const auto mirrors : {&Augmentation::flip, &Augmentation::vertical_flip}) {
    EXPECT_EQ(error(texts, mirrors),
              "a mirrored text is another one: expected no flip and no vertical_flip with texts as "
              "targets");
  }
  EXPECT_EQ(error(texts, &Augmentation::random_crop), "nothing");
}

}  // namespace
}  // namespace steelyard
