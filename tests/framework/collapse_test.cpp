#include "steelyard/framework/train/collapse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/train/trainer.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::collapse_test {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

// `counts` samples of each class.
Dataset labelled(const std::vector<std::int64_t>& counts) {
  std::int64_t size = 0;
  for (const std::int64_t count : counts) size += count;
  const Tensor labels = Tensor::empty({size}, DType::kI64);
  std::int64_t* next = labels.data<std::int64_t>();
  for (std::size_t c = 0; c < counts.size(); ++c) {
    next = std::fill_n(next, counts[c], static_cast<std::int64_t>(c));
  }
  return {Tensor::zeros({size, 1}), labels, static_cast<std::int64_t>(counts.size())};
}

Dataset ten_classes() { return labelled(std::vector<std::int64_t>(10, 500)); }

EpochReport epoch_of(std::int64_t epoch, double train_loss, std::optional<double> top1 = {},
                     double validation_loss = 1) {
  EpochReport report{.epoch = epoch, .step = 430 * (epoch + 1), .train_loss = train_loss};
  if (top1) report.validation = Metrics{.loss = validation_loss, .top1 = *top1};
  return report;
}

CollapseWatch watch_of(double constant, const Dataset& validation) {
  return {{.loss = constant}, {.loss = constant}, validation};
}

// What is said of the last of these epochs (training loss, top-1); nothing of those before.
std::string said(const Dataset& validation, double zeros,
                 const std::vector<std::pair<double, double>>& epochs, bool trained = false) {
  CollapseWatch watch = watch_of(zeros, validation);
  std::string text;
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    EXPECT_EQ(text, "");
    const auto [loss, top1] = epochs[i];
    text = watch.after(epoch_of(static_cast<std::int64_t>(i), loss, top1, loss), trained);
  }
  return text;
}

const double kLn10 = std::log(10.0);

TEST(CollapseWatch, TellsOfTop1ThatFallsToTheMostFrequentClass) {
  const std::string text = said(ten_classes(), kLn10, {{0.9, 70}, {0.8, 91.2}, {0.9, 10.4}});
  EXPECT_EQ(text,
            "epoch 3: validation top-1 has fallen from 91.20 to 10.40 %; the most frequent class "
            "alone gives 10.00 %");
  // Two standard deviations of 5000 samples are 0.85 points.
  EXPECT_EQ(said(ten_classes(), kLn10, {{0.9, 70}, {0.9, 10.9}}), "");
  EXPECT_NE(said(ten_classes(), kLn10, {{0.9, 70}, {0.9, 10.8}}), "");
  EXPECT_NE(said(ten_classes(), kLn10, {{0.9, 70}, {0.9, 0}}), "");
  // It knew little.
  EXPECT_EQ(said(ten_classes(), kLn10, {{2.2, 19}, {2.2, 10}}), "");
  // Ten standard deviations are 30 points where there are 100 samples.
  const Dataset few = labelled(std::vector<std::int64_t>(10, 10));
  EXPECT_EQ(said(few, kLn10, {{2.2, 39}, {2.2, 10}}), "");
  EXPECT_NE(said(few, kLn10, {{2.2, 41}, {2.2, 10}}), "");
  // The largest class counts where classes are not equally frequent.
  const Dataset uneven = labelled({8000, 2000});
  EXPECT_EQ(said(uneven, 0.69, {{0.4, 92}, {0.5, 81}}), "");
  EXPECT_THAT(said(uneven, 0.69, {{0.4, 92}, {0.5, 80}}), HasSubstr("alone gives 80.00 %"));
}

TEST(CollapseWatch, TellsOfATrainingLossThatRisesMostOfTheWayBack) {
  const auto of_losses = [](const std::vector<double>& losses) {
    CollapseWatch watch = watch_of(2.0, {});
    std::string text;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_EQ(text, "");
      text = watch.after(epoch_of(static_cast<std::int64_t>(i), losses[i]), false);
    }
    return text;
  };
  EXPECT_EQ(of_losses({1.0, 0.4, 1.7}),
            "epoch 3: the training loss has risen from 0.4 to 1.7; outputs that are all zero have "
            "2");
  EXPECT_EQ(of_losses({1.0, 0.4, 1.5, 0.5}), "");  // 1.6 is three quarters
  EXPECT_EQ(of_losses({1.7, 5.0}), "");            // nothing was known
  EXPECT_NE(of_losses({1.6, 5.0}), "");
  EXPECT_EQ(of_losses({9.0, 7.0}), "");
}

TEST(CollapseWatch, TellsOfTrainedWeightsThatKnowNothing) {
  const Dataset data = ten_classes();
  const std::string text = said(data, kLn10, {{2.31, 10}}, /*trained=*/true);
  EXPECT_EQ(text,
            "epoch 1: the training loss is 2.31, no better than the 2.303 of outputs that are all "
            "zero: what the trained weights knew is lost");
  EXPECT_EQ(said(data, kLn10, {{2.31, 10}}, /*trained=*/false), "");
  EXPECT_EQ(said(data, kLn10, {{2.31, 12}}, /*trained=*/true), "");  // it begins to recover
  EXPECT_EQ(said(data, kLn10, {{2.1, 10}}, /*trained=*/true), "");
  CollapseWatch watch = watch_of(kLn10, data);
  EpochReport early = epoch_of(0, 2.31, 10, 2.31);
  early.step = 199;
  EXPECT_EQ(watch.after(early, true), "");
  // Without a validation split, the first steps are part of the only loss there is.
  CollapseWatch alone = watch_of(kLn10, {});
  EXPECT_EQ(alone.after(epoch_of(0, 2.31), true), "");
  EXPECT_NE(alone.after(epoch_of(1, 2.31), true), "");
}

TEST(CollapseWatch, ComparesEachLossWithThatOfItsOwnConstantOutputs) {
  // Weights of a loss count in training only: the losses of zeros are 0.99 and 0.693.
  const auto said_of = [](double train_loss, double validation_loss) {
    CollapseWatch watch({.loss = 0.99, .outputs = "some outputs"}, {.loss = 0.693}, {});
    EpochReport report = epoch_of(0, train_loss);
    report.validation = Metrics{.loss = validation_loss};
    return watch.after(report, /*trained=*/true);
  };
  EXPECT_EQ(said_of(0.99, 0.693),
            "epoch 1: the training loss is 0.99, no better than the 0.99 of some outputs: what the "
            "trained weights knew is lost");
  EXPECT_EQ(said_of(0.99, 0.65), "");
  EXPECT_EQ(said_of(0.9, 0.693), "");
}

TEST(CollapseWatch, TellsOfTextsThatAreNoLongerRead) {
  CollapseWatch watch({.loss = 10}, {.loss = 10}, {});
  const auto after = [&](std::int64_t epoch, double loss, double cer, bool trained = false) {
    EpochReport report = epoch_of(epoch, loss);
    report.validation = Metrics{.loss = loss, .more = {{"cer", cer}}};
    return watch.after(report, trained);
  };
  EXPECT_EQ(after(0, 9.9, 100), "");  // it has read nothing yet
  EXPECT_EQ(after(1, 8.5, 80), "");
  EXPECT_EQ(after(2, 8.5, 98.9), "");
  TensorFileMetadata metadata;
  watch.save(metadata);
  watch.forget();
  EXPECT_EQ(after(3, 9.3, 99), "");
  watch.restore(metadata, "last");
  EXPECT_EQ(after(4, 8.5, 99),
            "epoch 5: the validation character error rate has risen from 80.00 to 99.00 %");
  watch.forget();
  EXPECT_EQ(after(5, 9.9, 98, /*trained=*/true), "");
  EXPECT_THAT(after(6, 9.9, 99, /*trained=*/true),
              HasSubstr("no better than the 10 of outputs that are all zero"));
}

TEST(CollapseWatch, ForgetsAndIsSavedWithACheckpoint) {
  CollapseWatch watch = watch_of(kLn10, ten_classes());
  watch.after(epoch_of(0, 0.7, 80), false);
  TensorFileMetadata metadata;
  watch.save(metadata);
  CollapseWatch resumed = watch_of(kLn10, ten_classes());
  resumed.restore(metadata, "last");
  EXPECT_EQ(resumed.after(epoch_of(1, 2.3, 10), false), watch.after(epoch_of(1, 2.3, 10), false));
  EXPECT_NE(resumed.after(epoch_of(2, 2.3, 10), false), "");
  watch.forget();
  EXPECT_EQ(watch.after(epoch_of(3, 2.3, 10), false), "");
  resumed.restore({}, "an earlier version's");
  EXPECT_EQ(resumed.after(epoch_of(2, 2.3, 10), false), "");
  metadata["most_top1"] = "inf";
  EXPECT_EQ(message_of<InputError>([&] { resumed.restore(metadata, "last"); }),
            "last: expected a finite number as 'most_top1', got inf");
}

// Two logits, each a weight times the only feature.
class Outputs : public Module {
 public:
  Outputs() : weight_(register_parameter("weight", Tensor::zeros({2, 1}))) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    return linear(x, weight_, Variable());
  }
  std::string type_name() const override { return "Outputs"; }

 private:
  Variable& weight_;
};

class EndsEpochsWith : public TrainerCallback {
 public:
  EndsEpochsWith(Module& model, std::vector<float> values, std::int64_t final_form_from)
      : weight_(model.named_parameters()[0].variable.value()),
        values_(std::move(values)),
        final_form_from_(final_form_from) {}
  std::int64_t final_form_from() const override { return final_form_from_; }
  void on_steps_done(std::int64_t epoch) override {
    weight_.span<float>()[1] = values_[static_cast<std::size_t>(epoch)];
  }
  void on_epoch_end(const EpochReport& report) override { told_.push_back(report.collapse); }
  const std::vector<std::string>& told() const { return told_; }

 private:
  Tensor weight_;
  std::vector<float> values_;
  std::int64_t final_form_from_;
  std::vector<std::string> told_;
};

// 400 samples of class 0, with a feature of -1, and 600 of class 1, with 1.
Dataset two_classes() {
  const Dataset data = labelled({400, 600});
  std::fill_n(data.inputs.data<float>(), 400, -1.0F);
  std::fill_n(data.inputs.data<float>() + 400, 600, 1.0F);
  return data;
}

// Epochs that end with these weights of class 1: all is right where they are above 0, else nothing.
// They are so small that the training loss says nothing. Continues where the folder holds a
// checkpoint; gives what the reports told.
std::vector<std::string> run_epochs(const std::filesystem::path& folder,
                                    const std::vector<float>& values, bool stops,
                                    std::int64_t final_form_from = 0) {
  Outputs model;
  EndsEpochsWith callback(model, values, final_form_from);
  Sgd optimizer(model.named_parameters(), {});
  TrainerOptions options;
  options.epochs = static_cast<std::int64_t>(values.size());
  options.lr_schedule.base_lr = 0;
  options.run_dir = folder;
  options.stops_on_collapse = stops;
  const Dataset data = two_classes();
  Trainer trainer(model, optimizer, data, data,
                  {.batch_size = 100, .normalization = {}, .augment = {}}, options, {&callback});
  const std::filesystem::path last = folder / "last.safetensors";
  if (std::filesystem::exists(last)) trainer.restore(load_checkpoint(last), "last");
  trainer.run(false);
  return callback.told();
}

TEST(Trainer, ARunThatCollapsesSavesTheEpochAndFails) {
  const testing::TemporaryFolder folder;
  const std::vector<float> values{0.1F, 0.2F, -0.1F, 0.1F};
  EXPECT_EQ(message_of<TrainingCollapsed>([&] { run_epochs(folder.path(), values, true); }),
            "epoch 3: validation top-1 has fallen from 100.00 to 0.00 %; the most frequent class "
            "alone gives 60.00 %; the epoch is saved (on_collapse: stop)");
  const Checkpoint saved = load_checkpoint(folder / "last.safetensors");
  EXPECT_EQ(saved.metadata.at("epoch"), "3");
  // It goes on from there, with the bits of a run that was only warned.
  EXPECT_EQ(run_epochs(folder.path(), values, true), std::vector<std::string>(1));
  const testing::TemporaryFolder warned;
  const auto told = run_epochs(warned.path(), values, false);
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[1], "");
  EXPECT_THAT(told[2], HasSubstr("has fallen from 100.00 to 0.00 %"));
  EXPECT_EQ(told[3], "");
  const Checkpoint resumed = load_checkpoint(folder / "last.safetensors");
  const Checkpoint whole = load_checkpoint(warned / "last.safetensors");
  EXPECT_EQ(resumed.metadata, whole.metadata);
}

// An epoch of 200 steps at a learning rate of 0 with outputs `weight` times 1, which trained
// weights are said to give.
std::string said_of_trained(const Loss& loss, const Tensor& targets, std::int64_t classes,
                            float weight) {
  Outputs model;
  model.named_parameters()[0].variable.value().fill(weight);
  Sgd optimizer(model.named_parameters(), {});
  TrainerOptions options;
  options.loss = loss;
  options.epochs = 1;
  options.lr_schedule.base_lr = 0;
  options.starts_trained = true;
  options.stops_on_collapse = true;
  const Dataset data{Tensor::full({targets.dim(0), 1}, 1), targets, classes};
  Trainer trainer(model, optimizer, data, data,
                  {.batch_size = targets.dim(0) / 200, .normalization = {}, .augment = {}}, options,
                  {});
  return message_of<TrainingCollapsed>([&] { trainer.run(false); });
}

TEST(Trainer, WeightedMarksAreComparedWithTheirOwnLossOfZeros) {
  const Tensor marks = Tensor::zeros({400, 2});
  for (std::size_t i = 0; i < 800; i += 4) marks.span<float>()[i] = 1;
  Loss loss{.type = Loss::Type::kBinaryCrossEntropy};
  loss.positive_weights = Tensor::from<double>({3}, {1});
  EXPECT_THAT(said_of_trained(loss, marks, 2, 0), HasSubstr("no better than the 1.04 of outputs"));
}

TEST(Trainer, RawTargetsAreComparedWithTheirMean) {
  const Tensor prices = Tensor::empty({400, 2});
  for (std::size_t i = 0; i < 800; ++i) prices.span<float>()[i] = i % 4 < 2 ? 90 : 110;
  EXPECT_EQ(said_of_trained({.type = Loss::Type::kMeanSquaredError}, prices, 0, 100),
            "epoch 1: the training loss is 100, no better than the 100 of outputs that are the "
            "mean of the targets: what the trained weights knew is lost (on_collapse: stop)");
}

// Epochs after a scheduled change are not compared with those before it.
TEST(Trainer, AScheduledChangeIsNoCollapse) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(run_epochs(folder.path(), {0.1F, 0.1F, -0.1F, -0.1F}, true, /*final_form_from=*/2),
            std::vector<std::string>(4));
}

}  // namespace
}  // namespace steelyard::collapse_test
