// The training loop: epochs and steps, checkpoints, best-so-far, interruption and divergence.
//
// Everything a run depends on is a function of its options and the step, or lies in the checkpoint:
// a run resumed from any checkpoint ends with the same bits as one that was never stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/train/collapse.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/lr_schedule.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/step_clock.h"
#include "steelyard/framework/train/step_runner.h"
#include "steelyard/framework/train/trainer_callback.h"
#include "steelyard/framework/train/weight_average.h"

namespace steelyard {

// The losses of healthy runs stay below a few times the reference, even when a scheduled change
// raises them.
inline constexpr double kDivergenceLimit = 100;

struct TrainerOptions : StepOptions {
  std::int64_t epochs = 1;
  LrSchedule lr_schedule;
  // If present, averages of the weights are kept; they are validated and are the tensors of
  // checkpoints.
  std::optional<WeightAverageOptions> average;
  // An epoch's training loss, or its validation loss, of more than so many times the reference is a
  // divergence. The reference is the larger of the first step's loss and the loss of outputs that
  // are all zero. Absent: only a loss that is not finite is a divergence.
  std::optional<double> divergence_limit = kDivergenceLimit;
  // Whether an epoch that has lost what the run knew (framework/train/collapse.h) ends it; if not,
  // the epoch's report says what was lost.
  bool stops_on_collapse = true;
  // Whether the model begins with trained weights, of which the same can be said.
  bool starts_trained = false;
  // The metric that chooses the best epoch (framework/train/metrics.h); empty: higher top-1, or
  // lower loss where there is none.
  std::string best_metric = {};
  // The folder of last.safetensors and best.safetensors; empty: nothing is written.
  std::filesystem::path run_dir;
  // The caller's own metadata, written to every checkpoint.
  TensorFileMetadata metadata;
  std::int64_t checkpoint_every_steps = 0;  // 0: at the ends of epochs only
  bool keep_step_checkpoints = false;       // also as step-N.safetensors
};

// An epoch and what its model reached.
struct BestEpoch {
  std::int64_t epoch = 0;
  Metrics metrics;
};

struct TrainResult {
  bool interrupted = false;
  std::int64_t step = 0;
  std::int64_t captured_steps = 0;  // of the steps done here: captured once and replayed
  std::string not_captured = {};    // on a GPU: why the last epoch's steps were not, if so
  // On the validation split, of the epochs whose model has its final form.
  std::optional<BestEpoch> best;
};

// Trains on the device where the model's parameters are. On a GPU the host queues steps and does
// not wait for them: that a loss is not finite shows when somebody reads it, at the latest when a
// checkpoint is saved.
class Trainer {
 public:
  // The model, optimizer and callbacks outlive the trainer; `validation` may be empty. Throws
  // std::invalid_argument on a callback that is null and where the optimizer has no parameter of a
  // model that has parameters to train, InputError on inputs that are not u8 or f32.
  Trainer(Module& model, Optimizer& optimizer, const Dataset& train, const Dataset& validation,
          const LoaderOptions& loader_options, const TrainerOptions& options,
          std::vector<TrainerCallback*> callbacks);

  // Continues from a checkpoint of this kind of run. Throws InputError when it does not fit. A best
  // epoch before final_form_from() is forgotten.
  void restore(const Checkpoint& checkpoint, const std::string& source_name);

  // Trains to the end, or until `stop` becomes true, on any rank: then saves last.safetensors and
  // returns. Of several ranks the first one writes the files, and what one throws all throw. A
  // run that came to its end leaves the averages in the model, where there are any, and is over.
  // Throws TrainingDiverged; TrainingCollapsed, with the epoch saved.
  TrainResult run(const std::atomic<bool>& stop);

  // What making the batches has cost this rank.
  LoaderSeconds loader_seconds() const { return loader_.seconds(); }

  // Steps and whole epochs done.
  std::int64_t step() const { return position_.step; }
  std::int64_t epochs_done() const { return position_.epoch; }
  std::int64_t total_steps() const { return options_.epochs * loader_.batches_per_epoch(); }
  // Whether the step is the last of an epoch: what a checkpoint of it holds was validated.
  bool at_epoch_end() const { return position_.batch == 0 && position_.step > 0; }

  // The best epoch so far, of which best.safetensors is the checkpoint.
  const std::optional<BestEpoch>& best() const { return best_; }
  // Forgets the best epoch: it is chosen among the remaining epochs.
  void forget_best() { best_.reset(); }

  // Throws TrainingDiverged where a loss is not finite or beyond the divergence limit; `what` names
  // it ("test loss"). Of a loss over `dataset` the message has first_non_finite(). Waits for a GPU.
  void require_loss(const std::string& what, double loss, const Dataset& dataset = {}) const;

 private:
  // The position of the run; all of it is in the checkpoint.
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t batch = 0;    // the next one
    std::int64_t step = 0;     // steps done
    std::int64_t samples = 0;  // of the epoch so far
  };

  // The latest final_form_from() of all callbacks, but at most the last epoch.
  std::int64_t final_form_from() const;
  TrainResult result(bool interrupted) const;
  bool run_epoch(const std::atomic<bool>& stop);  // false: stopped
  // Whether a checkpoint is due within the epoch.
  bool saves_after_step() const;
  bool any_rank_stops(const std::atomic<bool>& stop);
  // Runs `work`; the TrainingDiverged that it throws on one rank is thrown on all. Returns whether
  // `stop` is then true on any rank.
  bool together(const std::function<void()>& work, const std::atomic<bool>& stop = false);
  // Whether this rank writes the run's files.
  bool writes() const { return !options_.run_dir.empty() && ranks_.rank() == 0; }
  // Returns whether the run is to stop, on any rank.
  bool train_step(const Batch& batch, const std::atomic<bool>& stop);
  void finish_epoch();
  // What CollapseWatch says of the epoch.
  std::string what_was_lost(const EpochReport& report);
  // The state of optimizer, averages and callbacks: everything but the model and the position.
  std::vector<NamedBuffer> training_state() const;
  Checkpoint checkpoint();
  // Throws TrainingDiverged on all ranks where the model's state is not the same on all. After a
  // step: an evaluation renews what follows from learned ranges, on those ranks that have samples.
  void compare_replicas();
  void save(const std::string& file_name);
  void write(const std::filesystem::path& path);
  void require_finite_state() const;

  Module& model_;
  Optimizer& optimizer_;
  std::vector<NamedParameter> parameters_;
  Dataset validation_;
  LoaderOptions loader_options_;
  DataLoader loader_;
  Device device_;
  DeviceBatches batches_;
  TrainerOptions options_;
  comm::Communicator alone_;
  comm::Communicator& ranks_;
  std::vector<TrainerCallback*> callbacks_;
  std::optional<WeightAverage> average_;
  StepRunner steps_;
  StepClock clock_;
  Position position_;
  double zeros_loss_;  // of outputs that are all zero
  CollapseWatch collapse_;
  std::optional<BestEpoch> best_;
};

}  // namespace steelyard
