// The training loop: epochs and steps, checkpoints, best-so-far, interruption and divergence.
//
// Everything a run depends on is a function of its options and the step, or lies in the checkpoint:
// a run resumed from any checkpoint ends with the same bits as one that was never stopped.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "steelyard/framework/captured_work.h"
#include "steelyard/framework/checkpoint.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/data/device_batches.h"
#include "steelyard/framework/evaluate.h"
#include "steelyard/framework/lr_schedule.h"
#include "steelyard/framework/module.h"
#include "steelyard/framework/optimizer.h"
#include "steelyard/framework/training_loss.h"
#include "steelyard/framework/weight_average.h"

namespace steelyard {

// A loss, gradient or weight is no longer finite, or the loss of an epoch is beyond the divergence
// limit; the message names the step and the first bad tensor, or the limit. Nothing was saved.
class TrainingDiverged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct StepReport {
  std::int64_t step = 0;  // steps done, this one included
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // within the epoch, from 0
  // Waits for a GPU that is still at work on it. Throws TrainingDiverged when it is not finite.
  std::function<double()> loss{};
  double lr = 0;
};

// Something that a callback measures at the end of an epoch.
struct Figure {
  std::string name;
  double value = 0;
};

struct EpochReport {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  double train_loss = 0;                // mean over the epoch's samples, as trained
  std::optional<Metrics> validation{};  // when there is a validation split
  std::vector<Figure> figures{};        // of all callbacks
};

// What watches or steers a run from outside the engine.
//
// A callback may have a part in the step itself: work on gradients and weights. On a GPU a step is
// recorded and run again as a whole, without the calls that queued it. The part may be in it where
//   - on_step_begin() writes what differs from step to step to the device, and on_gradients() and
//     on_update() only queue work that reads it there, on tensors that stay where they are, and
//     wait for nothing;
//   - what the host counts is counted in on_step_begin() or on_step_end(), which every step calls;
//   - repeats_last_step() says when the host would now queue other work than in the step before.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  // The place to change what decides on the work of a step (switches, widths): steps of one epoch
  // may be recorded.
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}
  // The epoch from which on the model has the form that the run is to end with: no earlier one is
  // the best.
  virtual std::int64_t final_form_from() const { return 0; }
  // Before a step is queued; `step` steps are done.
  virtual void on_step_begin(std::int64_t /*step*/, std::int64_t /*total_steps*/) {}
  // Whether the callback has a part in the step; only then are on_gradients() and on_update()
  // called.
  virtual bool takes_part_in_steps() const { return false; }
  // After backward, before clipping and the optimizer's step: gradients may still change.
  virtual void on_gradients() {}
  // After the optimizer's step: weights may still change.
  virtual void on_update() {}
  // Asked after on_step_begin(): whether on_gradients() and on_update() would queue the very work
  // of the step before. Where not, the step is not a recorded one, and what was recorded is
  // dropped.
  virtual bool repeats_last_step() const { return false; }
  // After the step, before any checkpoint of it.
  virtual void on_step_end(const StepReport& /*report*/) {}
  // After the epoch's last step, before the model is evaluated: it may still change. Where weights
  // are averaged the model holds the averages.
  virtual void on_steps_done(std::int64_t /*epoch*/) {}
  // Before every checkpoint, one of an interrupted run too: the last chance to refuse it, by
  // throwing.
  virtual void on_checkpoint() {}
  // Before the epoch's checkpoint.
  virtual void on_epoch_end(const EpochReport& /*report*/) {}
  // What resuming needs of this callback, under names with a '/', as Optimizer::named_state().
  virtual std::vector<NamedBuffer> named_state() const { return {}; }
  virtual std::vector<Figure> figures() const { return {}; }
};

// Healthy runs stay below a few times the reference, even where a scheduled change hurts.
inline constexpr double kDivergenceLimit = 100;

struct TrainerOptions {
  std::int64_t epochs = 1;
  std::uint64_t seed = 0;
  Loss loss;
  std::optional<Distillation> distillation;
  LrSchedule lr_schedule;
  std::optional<double> clip_grad_norm;
  // Present: averages of the weights are validated, and are the tensors of checkpoints.
  std::optional<WeightAverageOptions> average;
  // An epoch's training loss, or its validation loss, of more than so many times the reference is a
  // divergence. The reference is the larger of the first step's loss and the loss of outputs that
  // are all zero. Absent: only what is not finite is one.
  std::optional<double> divergence_limit = kDivergenceLimit;
  // Where last.safetensors and best.safetensors go; empty: nothing is written.
  std::filesystem::path run_dir;
  // The caller's own, for every checkpoint.
  TensorFileMetadata metadata;
  std::int64_t checkpoint_every_steps = 0;  // 0: at the ends of epochs only
  bool keep_step_checkpoints = false;       // also as step-N.safetensors
  // On a GPU: steps are recorded as a CUDA graph, once an epoch, where they allow it: no module
  // that waits for the GPU or draws random numbers on the host, no callback whose part in the step
  // does not repeat (TrainerCallback::repeats_last_step()).
  bool cuda_graph = true;
};

// An epoch and what its model reached.
struct BestEpoch {
  std::int64_t epoch = 0;
  Metrics metrics;
};

struct TrainResult {
  bool interrupted = false;
  std::int64_t step = 0;
  std::int64_t recorded_steps = 0;  // of the steps done here: a recorded one, run again
  std::string not_recorded = {};    // on a GPU: why the last epoch's steps were not, if so
  // On the validation split, of the epochs whose model has its final form.
  std::optional<BestEpoch> best;
};

// Trains on the device where the model's parameters are. On a GPU the host queues steps and does
// not wait for them: that a loss is not finite shows when somebody reads it, at the latest when a
// checkpoint is saved.
class Trainer {
 public:
  // The model, optimizer and callbacks outlive the trainer; `validation` may be empty.
  Trainer(Module& model, Optimizer& optimizer, const Dataset& train, const Dataset& validation,
          const LoaderOptions& loader_options, const TrainerOptions& options,
          std::vector<TrainerCallback*> callbacks);

  // Continues from a checkpoint of this kind of run. Throws InputError when it does not fit. A best
  // epoch before final_form_from() is forgotten.
  void restore(const Checkpoint& checkpoint, const std::string& source_name);

  // Trains to the end, or until `stop` becomes true: then saves last.safetensors and returns. A
  // run that came to its end leaves the averages in the model, where there are any, and is over.
  // Throws TrainingDiverged.
  TrainResult run(const std::atomic<bool>& stop);

  // Steps and whole epochs done.
  std::int64_t step() const { return position_.step; }
  std::int64_t epochs_done() const { return position_.epoch; }
  std::int64_t total_steps() const { return options_.epochs * loader_.batches_per_epoch(); }
  // Whether the step is the last of an epoch: what a checkpoint of it holds was validated.
  bool at_epoch_end() const { return position_.batch == 0 && position_.step > 0; }

  // The best epoch so far, of which best.safetensors is the checkpoint.
  const std::optional<BestEpoch>& best() const { return best_; }
  // Chooses it among the epochs that are left.
  void forget_best() { best_.reset(); }

  // Throws TrainingDiverged where a loss is not finite or beyond the divergence limit; `what` names
  // it ("test loss"). Waits for a GPU.
  void require_loss(const std::string& what, double loss) const;

 private:
  // Where the run stands; all of it is in the checkpoint.
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t batch = 0;    // the next one
    std::int64_t step = 0;     // steps done
    std::int64_t samples = 0;  // of the epoch so far
  };

  // Of all callbacks; at the latest the last epoch.
  std::int64_t final_form_from() const;
  TrainResult result(bool interrupted) const;
  bool run_epoch(const std::atomic<bool>& stop);  // false: stopped
  // A step that runs again on new batches of one shape.
  struct RecordedStep {
    Batch batch;
    Tensor loss;
    std::unique_ptr<CapturedWork> work;
  };

  void train_step(const Batch& batch);
  // Whether the step was one recorded before, or is recorded now.
  bool run_recorded(const Batch& batch, double lr);
  // Whether every callback's part in the step is that of the step before.
  bool callbacks_repeat() const;
  void record_no_steps(const std::string& reason);
  // Forward and backward, and what callbacks do to gradients; gives the loss.
  Tensor compute_gradients(const Batch& batch);
  void update_parameters(const Tensor& loss, const Batch& batch);
  double finite_loss(std::int64_t step, const Tensor& loss, const Batch& batch) const;
  void finish_epoch();
  // Of optimizer, averages and callbacks: everything but the model and the position.
  std::vector<NamedBuffer> training_state() const;
  Checkpoint checkpoint();
  void save(const std::string& file_name);
  // `step` steps were done when it showed, that one included.
  [[noreturn]] void diverged(std::int64_t step, const std::string& what, const Batch& batch) const;
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
  std::vector<TrainerCallback*> callbacks_;
  std::optional<WeightAverage> average_;
  Position position_;
  Tensor device_step_;     // i64, on the device: position_.step, for the random numbers of the step
  Tensor loss_sum_;        // f64, on the device: over the epoch's samples so far
  Tensor first_loss_;      // f64, on the device: of step 1; 0 before it
  double zeros_loss_ = 0;  // of outputs that are all zero
  std::optional<RecordedStep> recorded_;
  bool may_record_ = false;
  std::string not_recorded_;         // empty once a step of the epoch was one
  std::int64_t steps_of_epoch_ = 0;  // run since the epoch began, or since resuming in it
  std::int64_t recorded_steps_ = 0;
  std::optional<BestEpoch> best_;
};

}  // namespace steelyard
