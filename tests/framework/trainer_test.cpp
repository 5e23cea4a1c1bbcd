#include "steelyard/framework/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "steelyard/framework/comm/threads.h"
#include "steelyard/framework/ops/products/linear.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/containers/builders.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;

// A linear layer whose outputs are NaN outside training, as after an overflowed running variance.
class NanInEvaluation : public Module {
 public:
  NanInEvaluation() : weight_(register_parameter("weight", Tensor::full({2, 3}, 0.5))) {}
  Variable forward(const Variable& x, ForwardContext& context) override {
    if (context.training) return linear(x, weight_, Variable());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    return Variable(Tensor::full({x.dim(0), 2}, nan));
  }
  std::string type_name() const override { return "NanInEvaluation"; }

 private:
  Variable& weight_;
};

class StaysFinite : public NanInEvaluation {
 public:
  Variable forward(const Variable& x, ForwardContext&) override {
    ForwardContext training{.training = true};
    return NanInEvaluation::forward(x, training);
  }
};

Dataset four_samples() { return {Tensor::full({4, 3}, 1.0), Tensor::zeros({4}, DType::kI64), 2}; }

TrainResult train_with(const TrainerOptions& options, Module& model,
                       std::vector<TrainerCallback*> callbacks = {}, bool stop = false) {
  Sgd optimizer(model.named_parameters(), {});
  const LoaderOptions loader{.batch_size = 2, .normalization = {}, .augment = {}};
  Trainer trainer(model, optimizer, four_samples(), four_samples(), loader, options,
                  std::move(callbacks));
  return trainer.run(stop);
}

TrainResult train_one_epoch(Module& model, const std::filesystem::path& run_dir,
                            std::vector<TrainerCallback*> callbacks = {}, bool stop = false,
                            comm::Communicator* ranks = nullptr) {
  TrainerOptions options;
  options.run_dir = run_dir;
  if (ranks != nullptr) {
    options.ranks = ranks;
    options.shards = ranks->size();
    options.checkpoint_every_steps = 1;
  }
  return train_with(options, model, std::move(callbacks), stop);
}

// Nothing is better than NaN, so that the first epoch's model would have stayed the best.
TEST(Trainer, AValidationLossThatIsNotFiniteStopsTheRunAndSavesNothing) {
  const testing::TemporaryFolder folder;
  NanInEvaluation model;
  EXPECT_EQ(message_of<TrainingDiverged>([&] { train_one_epoch(model, folder.path()); }),
            "step 2: validation loss is nan");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// No later epoch would be better.
TEST(Trainer, AMetricThatChoosesTheBestEpochIsFinite) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  TrainerOptions options;
  options.run_dir = folder.path();
  options.best_metric = "odd";
  options.loss.own_metrics =
      std::make_shared<const std::vector<MetricInfo>>(std::vector<MetricInfo>{
          {.name = "odd", .label = "odd", .value = [](const Predictions&, const Dataset&) {
             return std::numeric_limits<double>::quiet_NaN();
           }}});
  EXPECT_EQ(
      message_of<TrainingDiverged>([&] { train_with(options, model); }),
      "step 2: the metric odd of the validation samples, which chooses the best epoch, is nan");
}

// Its parameters are listed twice.
TEST(Trainer, ClipsTheGradientOfALayerInTwoPlacesOnce) {
  Rng rng(1);
  const auto shared = linear(3, 3, rng);
  const auto model = sequential({{"a", shared}, {"b", shared}});
  Sgd optimizer(*model);
  StepOptions options;
  options.clip_grad_norm = 0.25;
  for (const NamedParameter& p : model->named_parameters()) {
    if (p.name.ends_with("weight")) p.variable.value().fill(3.0);
  }
  StepRunner(*model, optimizer, options, {})
      .run({Tensor::full({4, 3}, 2.0), Tensor::zeros({4}, DType::kI64)}, 0.1, 0);
  double squares = 0;
  for (const Variable& variable : {shared->weight(), shared->bias()}) {
    for (const float g : variable.grad().span<float>()) squares += double{g} * double{g};
  }
  EXPECT_NEAR(std::sqrt(squares), 0.25, 1e-5);
}

// Makes a trainer of `model` and runs nothing.
void make_trainer(Module& model, Optimizer& optimizer, const Dataset& train,
                  const Dataset& validation, std::vector<TrainerCallback*> callbacks = {}) {
  Trainer(model, optimizer, train, validation,
          {.batch_size = 2, .normalization = {}, .augment = {}}, {}, std::move(callbacks));
}

// One made before prepare() holds variables that the model no longer has.
TEST(Trainer, RefusesAnOptimizerWithoutTheModelsParameters) {
  StaysFinite model, other;
  Sgd own(model.named_parameters(), {}), foreign(other.named_parameters(), {}), empty({}, {});
  EXPECT_NO_THROW(make_trainer(model, own, four_samples(), four_samples()));
  for (Optimizer* wrong : {&foreign, &empty}) {
    const std::string message = message_of<std::invalid_argument>(
        [&] { make_trainer(model, *wrong, four_samples(), four_samples()); });
    EXPECT_TRUE(message.starts_with("[trainer] expected an optimizer of the model's parameters"))
        << message;
  }
  for (NamedParameter& p : model.named_parameters()) p.variable.set_requires_grad(false);
  EXPECT_NO_THROW(make_trainer(model, empty, four_samples(), four_samples()));
}

TEST(Trainer, RefusesACallbackThatIsNull) {
  StaysFinite model;
  Sgd optimizer(model.named_parameters(), {});
  EXPECT_EQ(message_of<std::invalid_argument>(
                [&] { make_trainer(model, optimizer, four_samples(), four_samples(), {nullptr}); }),
            "[trainer] a callback is null");
}

TEST(Trainer, RefusesInputsOfAnotherDtypeBeforeItTrains) {
  StaysFinite model;
  Sgd optimizer(model.named_parameters(), {});
  Dataset doubles = four_samples();
  doubles.inputs = doubles.inputs.to(DType::kF64);
  const auto message_with = [&](const Dataset& train, const Dataset& validation) {
    return message_of<InputError>([&] { make_trainer(model, optimizer, train, validation); });
  };
  EXPECT_EQ(message_with(doubles, {}), "dataset: expected inputs u8 or f32, got f64");
  EXPECT_EQ(message_with(four_samples(), doubles),
            "validation: expected inputs u8 or f32, got f64");
}

class BeforeAnyFile : public TrainerCallback {
 public:
  explicit BeforeAnyFile(const std::filesystem::path& folder) : folder_(folder) {}
  void on_epoch_end(const EpochReport&) override {
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    ++calls_;
  }
  int calls() const { return calls_; }

 private:
  std::filesystem::path folder_;
  int calls_ = 0;
};

// The other way round a kill in between loses the epoch's report for ever.
TEST(Trainer, ReportsAnEpochBeforeItIsSaved) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  BeforeAnyFile callback(folder.path());
  train_one_epoch(model, folder.path(), {&callback});
  EXPECT_EQ(callback.calls(), 1);
  EXPECT_TRUE(std::filesystem::exists(folder / "last.safetensors"));
}

class RefusesCheckpoints : public TrainerCallback {
 public:
  void on_checkpoint() override { throw TrainingDiverged("refused"); }
};

// An interrupted run saves between two steps at which callbacks look at what it does.
TEST(Trainer, ACallbackMayRefuseTheCheckpointOfAnInterruptedRun) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  RefusesCheckpoints callback;
  EXPECT_EQ(message_of<TrainingDiverged>(
                [&] { train_one_epoch(model, folder.path(), {&callback}, /*stop=*/true); }),
            "refused");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

class ReadsWhatIsSaved : public TrainerCallback {
 public:
  explicit ReadsWhatIsSaved(std::filesystem::path last) : last_(std::move(last)) {}
  void on_saved(std::int64_t step) override {
    EXPECT_EQ(load_checkpoint(last_).metadata.at("step"), std::to_string(step));
    saved_.push_back(step);
  }
  const std::vector<std::int64_t>& saved() const { return saved_; }

 private:
  std::filesystem::path last_;
  std::vector<std::int64_t> saved_;
};

// The message about a lost rank names the newest checkpoint that is complete.
TEST(Trainer, EveryRankKnowsOfACheckpointOnceItIsComplete) {
  const testing::TemporaryFolder folder;
  comm::run_as_ranks(2, [&](comm::Communicator& ranks) {
    StaysFinite model;
    ReadsWhatIsSaved callback(folder / "last.safetensors");
    train_one_epoch(model, folder.path(), {&callback}, /*stop=*/false, &ranks);
    EXPECT_EQ(callback.saved(), (std::vector<std::int64_t>{1, 2, 2}));
    ranks.finish();
  });
}

class RemovesTheFolder : public TrainerCallback {
 public:
  explicit RemovesTheFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void on_checkpoint() override { std::filesystem::remove_all(folder_); }

 private:
  std::filesystem::path folder_;
};

// It was there when the run began: no wrong input.
TEST(Trainer, AFolderThatVanishesIsAFailure) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  RemovesTheFolder callback(folder.path());
  try {
    train_one_epoch(model, folder.path(), {&callback});
    FAIL() << "saved nothing, and nothing is thrown";
  } catch (const InputError& error) {
    FAIL() << error.what();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("best.safetensors: cannot create"), std::string::npos)
        << error.what();
  }
}

class ZeroesTheWeights : public TrainerCallback {
 public:
  explicit ZeroesTheWeights(Module& model) : model_(model) {}
  void on_steps_done(std::int64_t epoch) override {
    EXPECT_EQ(epoch, 0);
    for (const NamedParameter& p : model_.named_parameters()) p.variable.value().fill(0.0);
  }

 private:
  Module& model_;
};

// What a callback changes after the last step is what is evaluated and saved.
TEST(Trainer, EvaluatesAndSavesWhatIsLeftWhenTheStepsAreDone) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  ZeroesTheWeights callback(model);
  const TrainResult result = train_one_epoch(model, folder.path(), {&callback});
  EXPECT_NEAR(result.best->metrics.loss, std::log(2.0), 1e-6);
  for (const NamedTensor& t : load_checkpoint(folder / "last.safetensors").tensors) {
    if (t.name == "weight") {
      for (const float w : t.tensor.span<float>()) EXPECT_EQ(w, 0.0F);
    }
  }
}

// Each epoch ends with outputs (value, 0), of which `best_epoch` wants zeros.
class SetsTheWeights : public TrainerCallback {
 public:
  SetsTheWeights(Module& model, std::vector<double> values, std::int64_t final_form_from)
      : weight_(model.named_parameters()[0].variable.value()),
        values_(std::move(values)),
        final_form_from_(final_form_from) {}
  std::int64_t final_form_from() const override { return final_form_from_; }
  void on_steps_done(std::int64_t epoch) override {
    weight_.fill(0);
    weight_.span<float>()[0] = static_cast<float>(values_[static_cast<std::size_t>(epoch)]);
  }
  // The best epoch of a run of so many epochs in `folder`, continued where the folder holds a
  // checkpoint.
  std::int64_t best_epoch(Module& model, const std::filesystem::path& folder, std::int64_t epochs) {
    Sgd optimizer(model.named_parameters(), {});
    TrainerOptions options;
    options.epochs = epochs;
    options.loss.type = Loss::Type::kMeanSquaredError;
    options.run_dir = folder;
    const Dataset zeros{Tensor::full({4, 3}, 1.0), Tensor::zeros({4, 2}), 0};
    Trainer trainer(model, optimizer, zeros, zeros,
                    {.batch_size = 2, .normalization = {}, .augment = {}}, options, {this});
    const std::filesystem::path last = folder / "last.safetensors";
    if (std::filesystem::exists(last)) trainer.restore(load_checkpoint(last), "last");
    const TrainResult result = trainer.run(false);
    return result.best ? result.best->epoch : -1;
  }

 private:
  Tensor weight_;
  std::vector<double> values_;
  std::int64_t final_form_from_;
};

float saved_weight(const std::filesystem::path& checkpoint) {
  for (const NamedTensor& t : load_checkpoint(checkpoint).tensors) {
    if (t.name == "weight") return t.tensor.span<float>()[0];
  }
  return NAN;
}

TEST(Trainer, TheBestEpochIsOneWhoseModelHasItsFinalForm) {
  const std::vector<double> values{0.125, 0.25, 4, 1, 2};
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{0, 0}, {2, 3}, {4, 4}, {9, 4}};
  for (const auto& [from, best] : expected) {
    const testing::TemporaryFolder folder;
    StaysFinite model;
    SetsTheWeights callback(model, values, from);
    EXPECT_EQ(callback.best_epoch(model, folder.path(), 5), best) << from;
    EXPECT_EQ(saved_weight(folder / "best.safetensors"), values[static_cast<std::size_t>(best)]);
  }
}

// Checkpoints of runs that compared all epochs are continued too.
TEST(Trainer, ForgetsABestEpochFromBeforeTheFinalForm) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  SetsTheWeights any(model, {0.5, 1}, 0);
  EXPECT_EQ(any.best_epoch(model, folder.path(), 2), 0);
  SetsTheWeights later(model, {0.5, 1, 2}, 3);
  EXPECT_EQ(later.best_epoch(model, folder.path(), 3), 2);
  EXPECT_EQ(saved_weight(folder / "best.safetensors"), 2);
  SetsTheWeights longer(model, {0.5, 1, 2, 3, 4, 5}, 3);
  EXPECT_EQ(longer.best_epoch(model, folder.path(), 6), 3);
  EXPECT_EQ(saved_weight(folder / "best.safetensors"), 3);
}

TEST(Trainer, RefusesABestEpochThatIsNotDone) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  SetsTheWeights callback(model, {0.5, 1, 2}, 0);
  EXPECT_EQ(callback.best_epoch(model, folder.path(), 2), 0);
  const std::filesystem::path last = folder / "last.safetensors";
  for (const char* epoch : {"-1", "2", "3", "9223372036854775807"}) {
    Checkpoint checkpoint = load_checkpoint(last);
    checkpoint.metadata["best_epoch"] = epoch;
    save_checkpoint(last, checkpoint);
    EXPECT_EQ(message_of<InputError>([&] { callback.best_epoch(model, folder.path(), 3); }),
              "last: the best epoch " + std::string(epoch) + " is none of the 2 that are done");
  }
}

TEST(Trainer, RefusesStatesThatNoRunCanReach) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  SetsTheWeights callback(model, {0.5, 1, 2}, 0);
  callback.best_epoch(model, folder.path(), 2);
  const std::filesystem::path last = folder / "last.safetensors";
  const Checkpoint saved = load_checkpoint(last);
  for (const auto& [key, value, words] :
       {std::tuple("epoch_samples", "1", "1 samples with a sum of losses of 0"),
        std::tuple("epoch_samples", "-1", "are not those of 0 batches, of up to 0 samples"),
        std::tuple("epoch_loss_sum", "inf", "a sum of losses of inf"),
        std::tuple("first_loss", "inf", "expected a finite number as 'first_loss', got inf"),
        std::tuple("best_loss", "nan", "expected a finite number as 'best_loss', got nan")}) {
    Checkpoint checkpoint = saved;
    checkpoint.metadata[key] = value;
    save_checkpoint(last, checkpoint);
    EXPECT_THAT(message_of<InputError>([&] { callback.best_epoch(model, folder.path(), 3); }),
                ::testing::HasSubstr(words));
  }
}

// Trains one epoch to targets that are all `target`, of two outputs that begin as `begin`; after
// the epoch's steps they are `end` and 0. Gives what TrainingDiverged says, if anything.
std::string divergence(double target, double begin, double end, std::optional<double> limit) {
  StaysFinite model;
  const Tensor weight = model.named_parameters()[0].variable.value();
  weight.fill(begin / 3);
  SetsTheWeights callback(model, {end}, 0);
  Sgd optimizer(model.named_parameters(), {});
  TrainerOptions options;
  options.loss.type = Loss::Type::kMeanSquaredError;
  options.lr_schedule.base_lr = 0;
  options.divergence_limit = limit;
  const Dataset data{Tensor::full({4, 3}, 1.0), Tensor::full({4, 2}, target), 0};
  Trainer trainer(model, optimizer, data, data,
                  {.batch_size = 2, .normalization = {}, .augment = {}}, options, {&callback});
  try {
    trainer.run(false);
  } catch (const TrainingDiverged& error) {
    return error.what();
  }
  return "";
}

// The reference has the unit of the targets, and knows how badly the model began.
TEST(Trainer, ALossFarBeyondItsBeginningAndThatOfZerosIsADivergence) {
  struct Case {
    double target, begin, end;
    std::optional<double> limit;
    bool diverges;
  };
  for (const Case& c :
       {Case{1, 1, 30, 100, true}, Case{1, 1, 10, 100, false}, Case{1e6, 1e6, 1e7, 100, false},
        Case{1e6, 1e6, 3e7, 100, true}, Case{0, 1e3, 1e4, 100, false}, Case{0, 1e3, 3e4, 100, true},
        Case{0, 0, 1e9, 100, false},  // no reference
        Case{1, 1, 1e9, std::nullopt, false}, Case{1, 1, 10, 2, true}}) {
    const std::string message = divergence(c.target, c.begin, c.end, c.limit);
    EXPECT_EQ(message.starts_with("step 2: validation loss is "), c.diverges)
        << c.target << " " << c.begin << " " << c.end << ": " << message;
  }
  EXPECT_NE(divergence(1, 1, 30, 100).find(": more than 100 times 1 (divergence_limit)"),
            std::string::npos);
}

// As a bit that the memory of one machine lost.
class ChangesAWeight : public TrainerCallback {
 public:
  explicit ChangesAWeight(Tensor weight) : weight_(std::move(weight)) {}
  void on_step_end(const StepReport& report) override {
    float& value = weight_.span<float>()[1];
    if (report.step == 3) value = std::nextafter(value, 10.0F);
  }

 private:
  Tensor weight_;
};

// The messages of two ranks of which one loses that bit after step 3, in epochs of half as many
// steps as samples.
std::vector<std::string> messages_when_a_weight_differs(std::int64_t samples,
                                                        std::int64_t checkpoint_every_steps) {
  const testing::TemporaryFolder folder;
  const Dataset data{Tensor::full({samples, 3}, 1.0), Tensor::zeros({samples}, DType::kI64), 2};
  std::mutex mutex;
  std::vector<std::string> messages;
  comm::run_as_ranks(2, [&](comm::Communicator& ranks) {
    Rng rng(7);
    const auto model = sequential({{"first", linear(3, 4, rng)}, {"second", linear(4, 2, rng)}});
    Sgd optimizer(model->named_parameters(), {.momentum = 0.9});
    TrainerOptions options;
    options.run_dir = folder.path();
    options.epochs = 40;
    options.lr_schedule.base_lr = 0.01;
    options.checkpoint_every_steps = checkpoint_every_steps;
    options.shards = 2;
    options.ranks = &ranks;
    ChangesAWeight callback(model->named_parameters()[2].variable.value());
    std::vector<TrainerCallback*> callbacks;
    if (ranks.rank() == 1) callbacks.push_back(&callback);
    Trainer trainer(*model, optimizer, data, data,
                    {.batch_size = 2, .normalization = {}, .augment = {}}, options, callbacks);
    const std::string message = message_of<TrainingDiverged>([&] { trainer.run(false); });
    const std::lock_guard lock(mutex);
    messages.push_back(message);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  return messages;
}

TEST(Trainer, AWeightThatDiffersOnOneRankStopsAllBeforeACheckpointHoldsIt) {
  struct Case {
    std::int64_t samples;
    std::int64_t checkpoint_every_steps;
    std::string step;
  };
  for (const Case& c : {Case{120, 0, "50"}, Case{8, 0, "4"}, Case{120, 7, "7"}}) {
    const std::string expected =
        "step " + c.step +
        ": rank 1 has other values than rank 0 in second.weight: the memory or the arithmetic of "
        "one of them is at fault";
    EXPECT_EQ(messages_when_a_weight_differs(c.samples, c.checkpoint_every_steps),
              std::vector<std::string>(2, expected));
  }
}

TEST(Trainer, CheckpointsHoldTheCallersMetadata) {
  const testing::TemporaryFolder folder;
  StaysFinite model;
  TrainerOptions options;
  options.run_dir = folder.path();
  options.metadata = {{"data", "of the caller"}};
  train_with(options, model);
  for (const char* name : {"last.safetensors", "best.safetensors"}) {
    const TensorFileMetadata metadata = load_checkpoint_metadata(folder / name);
    EXPECT_EQ(metadata.at("data"), "of the caller");
    EXPECT_EQ(metadata, load_checkpoint(folder / name).metadata);
  }
}

}  // namespace
}  // namespace steelyard
