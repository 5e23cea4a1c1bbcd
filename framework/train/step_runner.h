// One training step: forward, backward and update, eager or as a captured CUDA graph.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/tensor/captured_work.h"
#include "steelyard/framework/train/optimizer.h"
#include "steelyard/framework/train/shards/sharded_step.h"
#include "steelyard/framework/train/trainer_callback.h"
#include "steelyard/framework/train/training_loss.h"

namespace steelyard {

struct StepOptions {
  std::uint64_t seed = 0;
  // A power of two: batches are cut into so many shards (framework/train/shards/sharded_step.h),
  // which the ranks share. More than one rank needs as many shards.
  std::int64_t shards = 1;
  comm::Communicator* ranks = nullptr;  // null: this process alone
  // Whether a step's ranges begin to count with the next one, as several shards need it.
  bool delayed_ranges = false;
  Loss loss;
  std::optional<Distillation> distillation;
  std::optional<double> clip_grad_norm;
  // On a GPU: steps are captured as a CUDA graph, once an epoch, where they allow it: no module
  // that waits for the GPU or draws random numbers on the host, no callback whose work in the step
  // does not repeat (StepWork::repeats_last_step()).
  bool cuda_graph = true;
};

// Steps with a sum of their losses, which stays on the device. The model, the optimizer and the
// callbacks' work outlive it.
class StepRunner {
 public:
  StepRunner(Module& model, Optimizer& optimizer, const StepOptions& options,
             std::vector<StepWork*> work);

  // Steps of an epoch may be captured; not the first ones, which allocate.
  void begin_epoch();
  // Forgets what was captured: the epoch is over, or the caller may move the model.
  void end_epoch() { captured_.reset(); }

  // The step's loss, on the device; on_step_begin() of the callbacks was called, and `step` steps
  // are done. Throws TrainingDiverged; on a GPU only when somebody reads the loss.
  Tensor run(const Batch& batch, double lr, std::int64_t step);
  // The loss as a number. Waits for a GPU. Throws TrainingDiverged, naming `step`, where it is not
  // finite.
  double finite_loss(std::int64_t step, const Tensor& loss, const Batch& batch) const;

  // f64, on the device: over the samples since somebody set it to 0, and of the run's first step.
  const Tensor& loss_sum() const { return loss_sum_; }
  const Tensor& first_loss() const { return first_loss_; }

  // Steps that were replayed since the run began here, and, on a GPU, why the epoch's were not.
  std::int64_t captured_steps() const { return captured_steps_; }
  const std::string& not_captured() const { return not_captured_; }

 private:
  // A step that runs again on new batches of one shape.
  struct CapturedStep {
    Batch batch;
    Tensor loss;
    std::unique_ptr<CapturedWork> work;
  };

  // Whether the step was one captured before, or is captured now.
  bool run_captured(const Batch& batch, double lr, std::int64_t step);
  // Whether every callback's work is that of the step before.
  bool work_repeats() const;
  void capture_no_steps(const std::string& reason);
  // Forward and backward, and what callbacks do to gradients; gives the loss.
  Tensor compute_gradients(const Batch& batch, std::int64_t step);
  Tensor compute_sharded_gradients(const Batch& batch, std::int64_t step);
  void update_parameters(const Tensor& loss, const Batch& batch, std::int64_t step);
  [[noreturn]] void diverged(std::int64_t step, const std::string& what, const Batch& batch) const;

  Module& model_;
  Optimizer& optimizer_;
  std::vector<NamedParameter> parameters_;
  StepOptions options_;
  std::vector<StepWork*> work_;
  Device device_;
  Tensor device_step_;  // i64, on the device: steps done, for the random numbers of the step
  Tensor loss_sum_;
  Tensor first_loss_;
  comm::Communicator alone_;
  std::optional<ShardedStep> sharded_;
  std::optional<CapturedStep> captured_;
  bool may_capture_ = false;
  std::string not_captured_;         // empty once a step of the epoch was captured
  std::int64_t steps_of_epoch_ = 0;  // run since the epoch began, or since resuming in it
  std::int64_t captured_steps_ = 0;
};

}  // namespace steelyard
