#include "steelyard/framework/data/data_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/rng.h"

namespace steelyard {
namespace {

// Images of distinct pixels from 1 to 250; labels count up.
Dataset images(std::int64_t size, std::int64_t side, std::int64_t channels) {
  Dataset d{Tensor::empty({size, side, side, channels}, DType::kU8),
            Tensor::empty({size}, DType::kI64), size};
  const auto pixels = d.inputs.span<std::uint8_t>();
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(1 + i * 7 % 250);
  }
  for (std::int64_t i = 0; i < size; ++i) d.targets.data<std::int64_t>()[i] = i;
  return d;
}

LoaderOptions augmented(std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.shuffle = true;
  options.seed = 5;
  options.augment = {.random_crop = true, .crop_padding = 2, .flip = true};
  return options;
}

bool same(const Batch& a, const Batch& b) {
  return a.index == b.index && a.inputs.shape() == b.inputs.shape() &&
         std::ranges::equal(a.inputs.span<float>(), b.inputs.span<float>()) &&
         std::ranges::equal(a.targets.span<std::int64_t>(), b.targets.span<std::int64_t>());
}

std::vector<Batch> all_batches(DataLoader& loader, std::int64_t epoch, std::int64_t first = 0) {
  std::vector<Batch> batches;
  loader.start(epoch, first);
  while (auto batch = loader.next()) batches.push_back(*batch);
  EXPECT_FALSE(loader.next().has_value()) << "the end stays the end";
  return batches;
}

TEST(DataLoader, PrefetchChangesNothing) {
  const Dataset d = images(50, 6, 3);
  DataLoader ahead(d, augmented(8));
  DataLoader plain(d, augmented(8), 0);
  ASSERT_EQ(ahead.batches_per_epoch(), 7);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto a = all_batches(ahead, epoch);
    const auto b = all_batches(plain, epoch);
    ASSERT_EQ(a.size(), 7u);
    ASSERT_EQ(b.size(), 7u);
    EXPECT_EQ(a[6].inputs.dim(0), 2);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(same(a[i], b[i]));
      EXPECT_TRUE(same(a[i], make_batch(d, augmented(8), epoch, static_cast<std::int64_t>(i))));
    }
  }
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const Dataset d = images(50, 6, 1);
  DataLoader loader(d, augmented(8));
  const auto whole = all_batches(loader, 4);
  loader.start(9);  // abandoned
  loader.next();
  const auto rest = all_batches(loader, 4, 3);
  ASSERT_EQ(rest.size(), 4u);
  for (std::size_t i = 0; i < rest.size(); ++i) EXPECT_TRUE(same(rest[i], whole[i + 3]));
  EXPECT_TRUE(all_batches(loader, 4, 7).empty());
  EXPECT_THROW(loader.start(4, 8), std::invalid_argument);
  EXPECT_THROW(loader.start(-1), std::invalid_argument);
}

TEST(DataLoader, EveryEpochVisitsEverySampleOnceInItsOwnOrder) {
  DataLoader loader(images(50, 6, 1), augmented(8));
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> order;
    for (const Batch& b : all_batches(loader, epoch)) {
      const auto labels = b.targets.span<std::int64_t>();
      order.insert(order.end(), labels.begin(), labels.end());
    }
    EXPECT_EQ((std::set<std::int64_t>(order.begin(), order.end()).size()), 50u);
    EXPECT_EQ(order.size(), 50u);
    EXPECT_TRUE(orders.insert(order).second);
  }
}

TEST(DataLoader, SeedsAndSamplesChangeTheAugmentation) {
  // All samples have one image: what differs is its placement.
  Dataset d = images(40, 6, 1);
  for (std::int64_t i = 1; i < 40; ++i) {
    std::copy_n(d.inputs.data<std::uint8_t>(), 36, d.inputs.data<std::uint8_t>() + i * 36);
  }
  LoaderOptions options = augmented(40);
  options.shuffle = false;
  const auto distinct = [](const Batch& b) {
    std::set<std::vector<float>> set;
    for (std::int64_t i = 0; i < 40; ++i) {
      const float* image = b.inputs.data<float>() + i * 36;
      set.insert(std::vector<float>(image, image + 36));
    }
    return set.size();
  };
  const Batch first = make_batch(d, options, 0, 0);
  EXPECT_GT(distinct(first), 20u);  // of 50 placements, 40 draws
  EXPECT_FALSE(same(first, make_batch(d, options, 1, 0)));
  options.seed = 6;
  EXPECT_FALSE(same(first, make_batch(d, options, 0, 0)));
}

// Every augmented image must be the zero-padded image cropped at one of the 25 places, mirrored or
// not; all 50 possibilities must occur, equally often.
TEST(DataLoader, AugmentationIsACropOfThePaddedImage) {
  constexpr std::int64_t kSide = 6;
  constexpr std::int64_t kChannels = 2;
  constexpr std::int64_t kEpochs = 5000;
  const Dataset d = images(1, kSide, kChannels);
  const auto padded = [&](std::int64_t y, std::int64_t x, std::int64_t c) {
    if (y < 0 || x < 0 || y >= kSide || x >= kSide) return 0.0F;
    return static_cast<float>(d.inputs.data<std::uint8_t>()[(y * kSide + x) * kChannels + c]);
  };
  std::map<std::vector<int>, int> placement_counts;
  std::map<std::vector<int>, std::tuple<int, int, bool>> expected;
  for (int dy = -2; dy <= 2; ++dy) {
    for (int dx = -2; dx <= 2; ++dx) {
      for (const bool flip : {false, true}) {
        std::vector<int> image;
        for (std::int64_t y = 0; y < kSide; ++y) {
          for (std::int64_t x = 0; x < kSide; ++x) {
            for (std::int64_t c = 0; c < kChannels; ++c) {
              const std::int64_t from = flip ? kSide - 1 - x : x;
              image.push_back(static_cast<int>(padded(y + dy, from + dx, c)));
            }
          }
        }
        expected[image] = {dy, dx, flip};
      }
    }
  }
  ASSERT_EQ(expected.size(), 50u);
  const LoaderOptions options = augmented(1);
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Batch batch = make_batch(d, options, epoch, 0);
    std::vector<int> image;
    for (const float v : batch.inputs.span<float>()) {
      image.push_back(static_cast<int>(v * 255.0F + 0.5F));
    }
    ASSERT_TRUE(expected.contains(image)) << "epoch " << epoch;
    ++placement_counts[image];
  }
  EXPECT_EQ(placement_counts.size(), 50u);
  for (const auto& [image, count] : placement_counts) EXPECT_NEAR(count, kEpochs / 50, 50);
}

TEST(DataLoader, NormalizesBytesAndFloats) {
  Dataset d = images(3, 4, 2);
  LoaderOptions options;
  options.batch_size = 3;
  options.normalization = {{0.25F, 0.5F}, {0.5F, 2.0F}};
  const Batch bytes = make_batch(d, options, 0, 0);
  for (std::size_t i = 0; i < bytes.inputs.span<float>().size(); ++i) {
    const double x = d.inputs.span<std::uint8_t>()[i] / 255.0;
    EXPECT_NEAR(bytes.inputs.span<float>()[i], i % 2 == 0 ? (x - 0.25) / 0.5 : (x - 0.5) / 2.0,
                1e-6);
  }
  d.inputs = Tensor::from<float>({1.0F, 2.0F, 3.0F, 4.0F}, {2, 2});
  d.targets = Tensor::from<float>({7.0F, 8.0F}, {2});
  const Batch floats = make_batch(d, options, 0, 0);
  const std::vector<float> expected = {1.5F, 0.75F, 5.5F, 1.75F};
  EXPECT_TRUE(std::ranges::equal(floats.inputs.span<float>(), expected));
  EXPECT_EQ(floats.targets.span<float>()[1], 8.0F);
}

TEST(DataLoader, NormalizesWholeTensorsAsBatches) {
  for (const DType dtype : {DType::kU8, DType::kF32}) {
    Dataset d{Tensor::zeros({5, 2, 3, 2}, dtype), Tensor::zeros({5}, DType::kI64), 2};
    for (std::int64_t i = 0; i < d.inputs.size(); ++i) {
      if (dtype == DType::kU8) d.inputs.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 4);
      if (dtype == DType::kF32) d.inputs.data<float>()[i] = 0.3F * static_cast<float>(i);
    }
    LoaderOptions options;
    options.batch_size = 5;
    options.normalization = {{0.13F, 0.37F}, {0.1F, 3.0F}};
    const Tensor all = normalized(d.inputs, options.normalization);
    const Batch batch = make_batch(d, options, 0, 0);
    EXPECT_TRUE(std::ranges::equal(all.span<float>(), batch.inputs.span<float>()));
    for (std::int64_t i = 0; i < all.size(); ++i) {
      const auto c = static_cast<std::size_t>(i % 2);
      const double x = dtype == DType::kU8 ? d.inputs.data<std::uint8_t>()[i] / 255.0
                                           : double{d.inputs.data<float>()[i]};
      const double y = (x - options.normalization.mean[c]) / options.normalization.stddev[c];
      EXPECT_EQ(all.data<float>()[i], static_cast<float>(y)) << dtype_name(dtype) << " " << i;
    }
    EXPECT_THROW(normalized(d.inputs, {{0.5F}, {1.0F}}), InputError);
  }
  EXPECT_THROW(normalized(Tensor::zeros({4}), {}), InputError);
  EXPECT_THROW(normalized(Tensor::zeros({4, 2}, DType::kI64), {}), InputError);
  EXPECT_EQ(normalized(Tensor::zeros({0, 2}), {}).shape(), (Shape{0, 2}));
}

TEST(DataLoader, CountsBatches) {
  const Dataset d = images(10, 4, 1);
  LoaderOptions options;
  options.batch_size = 4;
  EXPECT_EQ(batches_per_epoch(d, options), 3);
  options.drop_last = true;
  EXPECT_EQ(batches_per_epoch(d, options), 2);
  EXPECT_THROW(make_batch(d, options, 0, 2), std::out_of_range);
  options.batch_size = 5;
  EXPECT_EQ(batches_per_epoch(d, options), 2);
}

// Whatever else changes the images.
TEST(DataLoader, VerticalFlipsHaveNumbersOfTheirOwn) {
  constexpr std::int64_t kCount = 64;
  const Tensor rows = Tensor::empty({kCount, 2, 3, 1});  // 0, 0, 0 above 1, 1, 1
  for (std::int64_t i = 0; i < rows.size(); ++i) rows.data<float>()[i] = i / 3 % 2 == 0 ? 0.0F : 1;
  const Dataset d{rows, Tensor::zeros({kCount}, DType::kI64), 1};
  const auto flipped = [&](const Augmentation& augment, std::int64_t epoch) {
    const LoaderOptions options{.batch_size = kCount, .normalization = {}, .augment = augment};
    const Tensor inputs = make_batch(d, options, epoch, 0).inputs;
    std::vector<bool> upside_down;
    for (std::int64_t i = 0; i < kCount; ++i) {
      EXPECT_NE(inputs.data<float>()[i * 6], inputs.data<float>()[i * 6 + 5]);
      upside_down.push_back(inputs.data<float>()[i * 6] == 1);
    }
    return upside_down;
  };
  const std::vector<bool> alone = flipped({.vertical_flip = true}, 0);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(alone, true)), kCount / 2.0, 16);
  EXPECT_EQ(flipped({.flip = true, .vertical_flip = true}, 0), alone);
  EXPECT_NE(flipped({.vertical_flip = true}, 1), alone);
  EXPECT_EQ(flipped({.flip = true}, 0), std::vector<bool>(kCount));
}

TEST(DataLoader, RejectsOptionsThatDoNotFit) {
  const Dataset d = images(4, 4, 1);
  const auto rejects = [&](auto change, const Dataset& dataset) {
    LoaderOptions options;
    change(options);
    EXPECT_THROW(DataLoader(dataset, options), InputError);
  };
  rejects([](LoaderOptions& o) { o.batch_size = 0; }, d);
  rejects([](LoaderOptions& o) { o.normalization = {{0, 0}, {1, 1}}; }, d);
  rejects([](LoaderOptions& o) { o.normalization = {{0}, {0}}; }, d);
  rejects([](LoaderOptions& o) { o.augment = {.random_crop = true, .crop_padding = 4}; }, d);
  for (auto flip : {&Augmentation::flip, &Augmentation::vertical_flip}) {
    rejects([&](LoaderOptions& o) { o.augment.*flip = true; },
            {Tensor::zeros({4, 3}), Tensor::zeros({4}, DType::kI64), 1});
  }
  // Targets of pixels would stay where they are.
  for (auto change : {&Augmentation::flip, &Augmentation::vertical_flip, &Augmentation::random_crop,
                      &Augmentation::erasing}) {
    rejects([&](LoaderOptions& o) { o.augment.*change = true; },
            {d.inputs, Tensor::zeros(d.inputs.shape()), 0});
  }
  rejects([](LoaderOptions&) {}, Dataset{});
}

TEST(DataLoader, ErrorsOfTheBackgroundThreadReachTheCaller) {
  Dataset d{Tensor::zeros({8, 2}), Tensor::zeros({8}, DType::kI64), 1};
  d.inputs.data<float>()[11] = std::numeric_limits<float>::infinity();  // sample 5, batch 2
  LoaderOptions options;
  options.batch_size = 2;
  for (const std::int64_t prefetch : {0, 2}) {
    DataLoader loader(d, options, prefetch);
    loader.start(0);
    EXPECT_TRUE(loader.next().has_value());
    EXPECT_TRUE(loader.next().has_value());
    EXPECT_THROW(loader.next(), InputError);
    EXPECT_THROW(loader.next(), InputError);
    loader.start(0, 3);  // usable again
    EXPECT_TRUE(loader.next().has_value());
  }
}

TEST(DataLoader, StopsCleanlyAtAnyMoment) {
  const Dataset d = images(64, 8, 1);
  for (int i = 0; i < 200; ++i) {
    DataLoader loader(d, augmented(4));
    loader.start(i);
    for (int b = 0; b < i % 5; ++b) loader.next();
    if (i % 3 == 0) loader.start(i + 1);
  }
  EXPECT_THROW(DataLoader(d, augmented(4)).next(), std::logic_error);
}

// A source whose samples take long, by sleeping and by computing.
class SlowSamples : public SampleSource {
 public:
  std::int64_t size() const override { return 6; }
  DType dtype() const override { return DType::kU8; }
  const Shape& shape() const override { return shape_; }
  void read(std::int64_t, Rng*, void* to) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::clock_t end = std::clock() + CLOCKS_PER_SEC / 100;
    while (std::clock() < end) *static_cast<std::uint8_t*>(to) = 0;
  }

 private:
  Shape shape_{1};
};

TEST(DataLoader, TellsWhatBatchesHaveCost) {
  Dataset dataset{{}, Tensor::zeros({6}, DType::kI64), 1};
  dataset.source = std::make_shared<SlowSamples>();
  DataLoader loader(dataset, {.batch_size = 2, .normalization = {}, .augment = {}});
  EXPECT_EQ(loader.seconds().waited, 0);
  loader.start(0);
  while (loader.next()) continue;
  // One thread: 6 samples of 30 ms, of which 10 are work.
  EXPECT_GT(loader.seconds().waited, 0.15);
  EXPECT_GT(loader.seconds().making, 0.05);
  EXPECT_LT(loader.seconds().making, loader.seconds().waited);
}

TEST(DataLoader, ReadsBytesAndFloatsOnly) {
  for (const DType dtype : {DType::kF64, DType::kI64, DType::kF16}) {
    const Dataset dataset{Tensor::zeros({4, 3}, dtype), Tensor::zeros({4}, DType::kI64), 2};
    const LoaderOptions options{.batch_size = 2, .normalization = {}, .augment = {}};
    Dataset streamed = dataset;
    streamed.source = samples_of(dataset);
    streamed.inputs = {};
    const std::vector<std::int64_t> order{0, 1, 2, 3};
    for (const auto& read : {std::function([&] { make_batch(dataset, options, 0, 0); }),
                             std::function([&] { make_batch(dataset, options, order, 0, 0); }),
                             std::function([&] { make_batch(streamed, options, order, 0, 0); }),
                             std::function([&] { compute_normalization(dataset); }),
                             std::function([&] { DataLoader(dataset, options); }),
                             std::function([&] { DataLoader(streamed, options, 0); })}) {
      try {
        read();
        ADD_FAILURE() << dtype_name(dtype);
      } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()),
                  "dataset: expected inputs u8 or f32, got " + std::string(dtype_name(dtype)));
      }
    }
  }
}

TEST(DataLoader, KeepsUpWithTraining) {
  const Dataset d = images(60000, 28, 1);
  DataLoader loader(d, augmented(128), 0);
  const std::clock_t begin = std::clock();
  loader.start(0);
  std::int64_t samples = 0;
  while (const auto batch = loader.next()) samples += batch->inputs.dim(0);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(samples, 60000);
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 10.0) << "five times the goal: slower is a regression on any machine";
}

}  // namespace
}  // namespace steelyard
