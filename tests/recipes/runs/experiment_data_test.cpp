// What an experiment reads of its data, and what it makes of targets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>

#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "tests/recipes/recipe_support.h"
#include "tests/support/temporary_folder.h"

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

// Prices, far from 0, that depend on one feature; a second column does not vary.
Dataset priced(std::int64_t size) {
  Dataset dataset{Tensor::empty({size, 2}), Tensor::empty({size, 2}), 0};
  for (std::int64_t i = 0; i < size; ++i) {
    const auto x = static_cast<float>(i % 7);
    dataset.inputs.data<float>()[2 * i] = x;
    dataset.inputs.data<float>()[2 * i + 1] = static_cast<float>(i % 3);
    dataset.targets.data<float>()[2 * i] = 250000 + 30000 * x;
    dataset.targets.data<float>()[2 * i + 1] = 12;
  }
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
    registries_.datasets.add("prices", "here", [](const DatasetRequest&) {
      return DatasetSplits{priced(24), priced(5)};
    });
    registries_.datasets.add("texts", "here", [](const DatasetRequest&) {
      const Dataset texts{Tensor::zeros({4, 3}), Tensor::full({4, 2}, 1, DType::kI64), 4};
      return DatasetSplits{texts, texts};
    });
  }
  // A regression of prices, by the loss mse.
  Recipe regression(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.loss=mse", "model.classes=2"});
    return parse_recipe(with(kSmallRecipe, "dataset: fashion_mnist",
                             "dataset: prices, validation: 4, batch_size: 4"),
                        "r.yaml", overrides, registries_);
  }
  Experiment experiment(const Recipe& recipe) const {
    return {recipe, registries_, InitialWeights::kRecipe};
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

TEST_F(ExperimentData, TheLossOfTextsKnowsTheFramesOfTheModel) {
  const Recipe texts =
      recipe({"data.dataset=texts", "data.validation=1", "train.loss=ctc", "model.classes=20"});
  const Experiment made = experiment(texts);
  EXPECT_EQ(made.loss().characters, 4);
  EXPECT_EQ(made.loss().frames, 5);
  EXPECT_GT(loss_of_zero_outputs(made.loss(), made.train()), 0);
}

TEST_F(ExperimentData, TargetsOfARegressionAreNormalized) {
  const Experiment e = experiment(regression());
  const Normalization expected = compute_target_normalization(priced(24));
  EXPECT_EQ(e.target_normalization(), expected) << "of all training samples";
  EXPECT_EQ(expected.stddev[1], 1.0F);
  for (const Dataset* part : {&e.train(), &e.validation(), &e.test()}) {
    EXPECT_EQ(part->target_normalization, expected);
    for (const float target : part->targets.span<float>()) EXPECT_LT(std::abs(target), 2);
  }
  EXPECT_EQ(e.recipe().data.normalize_targets, true) << "as its folder will say";
  EXPECT_TRUE(std::any_of(e.notes().begin(), e.notes().end(), [](const std::string& note) {
    return note.starts_with("data.normalize_targets: true, the loss is that of (target - mean)");
  }));
  EXPECT_EQ(e.record().target_normalization, expected);

  // A run that goes on has the numbers of its checkpoint, or none, whatever the recipe says.
  const Experiment again(regression(), registries_, e.record(), RunData::kAll);
  EXPECT_EQ(again.test().target_normalization, expected);
  EXPECT_EQ(again.data_digest(), e.data_digest());
  RunRecord earlier = e.record();
  earlier.target_normalization = {};
  const Experiment raw(regression(), registries_, earlier, RunData::kTest);
  EXPECT_EQ(raw.test().targets.data<float>()[0], 250000);
  EXPECT_EQ(raw.deployed_model(), raw.model_in_units()) << "nothing follows the model";
}

TEST_F(ExperimentData, TargetsStayRawWhereTheRecipeOrTheTaskSaysSo) {
  const Experiment raw = experiment(regression({"data.normalize_targets=false"}));
  EXPECT_EQ(raw.target_normalization(), Normalization{});
  EXPECT_EQ(raw.test().targets.data<float>()[0], 250000);
  const Experiment cosine = experiment(regression({"train.loss=cosine"}));
  EXPECT_EQ(cosine.target_normalization(), Normalization{}) << "the direction would be another";
  EXPECT_EQ(cosine.recipe().data.normalize_targets, false);
  EXPECT_EQ(rejection([&] {
              experiment(regression({"train.loss=cosine", "data.normalize_targets=true"}));
            }),
            "--set data.normalize_targets: expected a loss of numbers, mse or huber, got cosine");
  EXPECT_FALSE(experiment(recipe()).recipe().data.normalize_targets) << "classes have no such key";
}

// The weights of init.checkpoint give values in some units.
TEST_F(ExperimentData, TargetsAreThoseOfTheFirstWeights) {
  const testing::TemporaryFolder folder;
  const auto saved = [&](const char* name, Normalization targets, bool with_record) {
    Experiment e = experiment(regression());
    RunRecord record = e.record();
    record.target_normalization = std::move(targets);
    Checkpoint checkpoint{module_state(e.model()), {}};
    if (with_record) add_record(record, checkpoint.metadata);
    save_checkpoint(folder / name, checkpoint);
    return "init.checkpoint=" + (folder / name).string();
  };
  const Normalization own = compute_target_normalization(priced(24));
  const Normalization other{{1000, 2}, {10, 4}};
  const std::string normalized = saved("normalized", other, true), raw = saved("raw", {}, true),
                    foreign = saved("foreign", {}, false);
  const auto of = [&](const std::vector<std::string>& overrides) {
    return experiment(regression(overrides)).target_normalization();
  };
  EXPECT_EQ(of({normalized}), other);
  EXPECT_EQ(of({normalized, "data.normalize_targets=true"}), other);
  EXPECT_EQ(of({normalized, "data.normalize_targets=false"}), Normalization{});
  EXPECT_EQ(of({normalized, "init.skip=[fc2]"}), own) << "a new last layer";
  for (const std::string& weights : {raw, foreign}) {
    EXPECT_EQ(of({weights}), Normalization{});
    EXPECT_EQ(of({weights, "data.normalize_targets=true"}), own);
  }
  const std::vector<std::string> notes = experiment(regression({foreign})).notes();
  EXPECT_NE(std::find(notes.begin(), notes.end(),
                      "data.normalize_targets: false, the targets are as the data has them: "
                      "init.checkpoint does not say what it was trained on"),
            notes.end());
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

TEST(MissingData, AreSaidToBeMadeByACommand) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "none").string();
  const std::string head = "version: 1\nname: a\ndata: {dataset: arrays, made_by: make all";
  const std::string rest =
      "}\nmodel: {type: mlp}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.1}}\n";
  const auto message = [&](const std::string& data) {
    return testing::message_of<InputError>([&] {
      const Registries registries;
      Experiment(parse_recipe(head + data + rest, "r.yaml", {}, registries), registries,
                 InitialWeights::kRecipe);
    });
  };
  EXPECT_EQ(message(", path: " + path),
            "r.yaml:3:50: " + path + ": there are no data yet; they are made by: make all");
  std::filesystem::create_directory(path);
  EXPECT_THAT(message(", path: " + path), HasSubstr("expected train.npz"));
  EXPECT_EQ(message(""), "r.yaml:3:34: data.made_by: expected data.path, where the data are made");
}

}  // namespace
}  // namespace steelyard
