// What an experiment reads of its data, and what it makes of targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "steelyard/framework/data/targets.h"
#include "steelyard/recipes/runs/experiment.h"
#include "tests/recipes/recipe_support.h"

namespace steelyard {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Bytes that count how often they are read.
class CountedSamples : public SampleSource {
 public:
  CountedSamples(std::int64_t size, std::atomic<int>& reads) : size_(size), reads_(reads) {}
  std::int64_t size() const override { return size_; }
  DType dtype() const override { return DType::kU8; }
  const Shape& shape() const override { return shape_; }
  void read(std::int64_t sample, Rng*, void* to) const override {
    ++reads_;
    std::fill_n(static_cast<std::uint8_t*>(to), 6, static_cast<std::uint8_t>(sample));
  }

 private:
  std::int64_t size_;
  Shape shape_{6};
  std::atomic<int>& reads_;
};

Dataset counted(std::int64_t size, std::atomic<int>& reads) {
  Dataset dataset{{}, Tensor::zeros({size}, DType::kI64), 3};
  // Two of the first class, one of the second, the rest of the third.
  for (std::int64_t i = 0; i < size; ++i) {
    dataset.targets.data<std::int64_t>()[i] = i < 2 ? 0 : i == 2 ? 1 : 2;
  }
  dataset.source = std::make_shared<CountedSamples>(size, reads);
  return dataset;
}

class ExperimentData : public ::testing::Test {
 protected:
  ExperimentData() {
    registries_.datasets.add("counted", "here", [this](const DatasetRequest&) {
      return DatasetSplits{counted(12, reads_), counted(3, reads_)};
    });
    registries_.datasets.add("undivided", "here", [this](const DatasetRequest&) {
      return DatasetSplits{counted(12, reads_), {}};
    });
  }
  Recipe recipe(const std::vector<std::string>& overrides = {}) const {
    return parse_recipe(with(kSmallRecipe, "dataset: fashion_mnist",
                             "dataset: counted, validation: 0, batch_size: 4"),
                        "r.yaml", overrides, registries_);
  }

  std::atomic<int> reads_ = 0;
  Registries registries_;
};

TEST_F(ExperimentData, ARunThatContinuesKnowsItsNormalization) {
  const Experiment first(recipe(), registries_, InitialWeights::kRecipe);
  EXPECT_EQ(reads_, 12);
  reads_ = 0;
  const Experiment again(recipe(), registries_, InitialWeights::kLater, "", first.known_data());
  EXPECT_EQ(reads_, 0);
  EXPECT_EQ(again.normalization(), first.normalization());
  const Experiment loaded(recipe(), registries_, first.record(), RunData::kAll);
  EXPECT_EQ(loaded.normalization(), first.normalization());
}

TEST_F(ExperimentData, SetsAsideOfEachClassItsShare) {
  using Counts = std::vector<std::int64_t>;
  const auto with_keys = [&](std::vector<std::string> overrides) {
    overrides.emplace_back("data.stratified=true");
    return Experiment(recipe(overrides), registries_, InitialWeights::kRecipe);
  };
  const Experiment validated = with_keys({"data.validation=6"});
  EXPECT_EQ(class_counts(validated.validation()), (Counts{1, 1, 4}));
  EXPECT_EQ(class_counts(validated.train()), (Counts{1, 0, 5}));
  EXPECT_THAT(validated.notes(), Not(Contains(HasSubstr("data.stratified"))));
  const Experiment tested =
      with_keys({"data.dataset=undivided", "data.test=4", "data.validation=4"});
  EXPECT_EQ(class_counts(tested.test()), (Counts{1, 0, 3}));
  EXPECT_EQ(class_counts(tested.validation()), (Counts{1, 0, 3}));
  EXPECT_EQ(class_counts(tested.train()), (Counts{0, 1, 3}));
  EXPECT_THAT(with_keys({}).notes(),
              Contains("data.stratified has no effect: no samples are set aside"));
}

TEST_F(ExperimentData, WeighsClasses) {
  const auto weights = [&](const std::string& value) {
    return Experiment(recipe({"train.class_weights=" + value}), registries_,
                      InitialWeights::kRecipe)
        .loss()
        .class_weights;
  };
  const auto balanced = weights("balanced").span<double>();
  EXPECT_EQ(std::vector<double>(balanced.begin(), balanced.end()),
            (std::vector<double>{12.0 / 6, 12.0 / 3, 12.0 / 27}));
  EXPECT_EQ(weights("[1, 2, 3]").data<double>()[2], 3);
  EXPECT_EQ(rejection([&] { weights("[1, 2]"); }),
            "--set train.class_weights: expected one for each of the 3 classes, got 2");
}

}  // namespace
}  // namespace steelyard
