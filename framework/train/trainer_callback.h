// Callbacks of a training run: they watch or change it from outside the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/framework/train/step_clock.h"

namespace steelyard {

struct StepReport {
  std::int64_t step = 0;  // steps done, this one included
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // within the epoch, from 0
  // Waits for a GPU that is still at work on it. Throws TrainingDiverged when it is not finite.
  std::function<double()> loss{};
  double lr = 0;
};

struct EpochReport {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  double train_loss = 0;                // mean over the epoch's samples, as trained
  std::optional<Metrics> validation{};  // when there is a validation split
  std::vector<Metric> metrics{};        // of all callbacks
  // What the epoch has lost of what the run knew (framework/train/collapse.h), where the run goes
  // on.
  std::string collapse{};
  // Seconds of the steps since the epoch began or was resumed, by rank.
  std::vector<StepSeconds> ranks{};
};

// Work on gradients and weights inside each step. On a GPU a step is captured and replayed as a
// whole, without the calls that queued it. The work may be part of it where
//   - the callback's on_step_begin() writes what differs from step to step to the device, and
//     on_gradients() and on_update() only queue work that reads it there, on tensors that stay
//     where they are, and wait for nothing;
//   - what the host counts is counted in on_step_begin() or on_step_end(), which every step calls;
//   - repeats_last_step() says when the host would now queue other work than in the step before.
class StepWork {
 public:
  virtual ~StepWork() = default;
  // After backward, before clipping and the optimizer's step: gradients may still change.
  virtual void on_gradients() {}
  // After the optimizer's step: weights may still change.
  virtual void on_update() {}
  // Asked after on_step_begin(): whether on_gradients() and on_update() would queue the very work
  // of the step before. If not, the step runs eagerly, and what was captured is dropped.
  virtual bool repeats_last_step() const { return false; }
};

class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  // Called before an epoch. Everything that changes which kernels a step launches (switches,
  // widths) must be changed here, because the steps of an epoch may be captured.
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}
  // The epoch from which on the model has the form that the run is to end with: no earlier one is
  // the best.
  virtual std::int64_t final_form_from() const { return 0; }
  // Before a step is queued; `step` steps are done.
  virtual void on_step_begin(std::int64_t /*step*/, std::int64_t /*total_steps*/) {}
  // The work of the callback inside a step; null for none.
  virtual StepWork* step_work() { return nullptr; }
  // After the step, before any checkpoint of it.
  virtual void on_step_end(const StepReport& /*report*/) {}
  // After the epoch's last step, before the model is evaluated: it may still change. Where weights
  // are averaged the model holds the averages.
  virtual void on_steps_done(std::int64_t /*epoch*/) {}
  // Before every checkpoint, one of an interrupted run too: the last chance to refuse it, by
  // throwing.
  virtual void on_checkpoint() {}
  // last.safetensors, of `step` steps, is complete; every rank knows.
  virtual void on_saved(std::int64_t /*step*/) {}
  // Before the epoch's checkpoint.
  virtual void on_epoch_end(const EpochReport& /*report*/) {}
  // The state of the callback that resuming needs, under names with a '/', as
  // Optimizer::named_state().
  virtual std::vector<NamedBuffer> named_state() const { return {}; }
  virtual std::vector<Metric> metrics() const { return {}; }
};

}  // namespace steelyard
