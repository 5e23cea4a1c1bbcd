// Batch normalization layers.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/train/step_statistics.h"

namespace steelyard {

struct BatchNormOptions {
  std::int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;  // the weight of the new batch in the running statistics
  static constexpr auto fields() {
    return std::tuple(field("channels", &BatchNormOptions::channels),
                      field("eps", &BatchNormOptions::eps),
                      field("momentum", &BatchNormOptions::momentum));
  }
};

// Normalizes each channel of [N, ..., C]: with the batch's statistics in training, with the running
// ones in evaluation and when frozen. Parameters weight and bias [C], buffers running_mean,
// running_var [C] and num_batches_tracked (i64), named as in PyTorch.
class BatchNorm : public Module, public StepStatistics {
 public:
  // Throws std::invalid_argument on channels < 1, eps <= 0 or momentum outside [0, 1].
  explicit BatchNorm(const BatchNormOptions& options);

  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string description() const override;

  // Frozen: running statistics are used, and not updated, in training too. Weight and bias still
  // learn.
  void set_frozen(bool frozen) { frozen_ = frozen; }
  bool frozen() const { return frozen_; }

  // The weight of the new batch from now on, in [0, 1].
  void set_momentum(double momentum);

  // The running statistics, and whether a pass in this context uses those of its batch instead.
  BatchNormState state(const ForwardContext& context) const;

  const BatchNormOptions& options() const { return options_; }
  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }
  const Tensor& running_mean() const { return running_mean_; }
  const Tensor& running_var() const { return running_var_; }
  const Tensor& num_batches_tracked() const { return num_batches_tracked_; }
  // One more batch moved the running statistics, or will when the step ends.
  void count_batch();

  // Moments are gathered; at the end one move of the running statistics follows those of all
  // shards together.
  void begin_step() override;
  std::vector<Tensor> sums() override { return {gathered_}; }
  void end_step() override;
  void abandon_step() override { gathered_ = Tensor(); }

 private:
  BatchNormOptions options_;
  bool frozen_ = false;
  Variable weight_;
  Variable bias_;
  Tensor running_mean_;
  Tensor running_var_;
  Tensor num_batches_tracked_;
  Tensor gathered_;  // f64 [3, C], between begin_step() and end_step()
};

// The batch norm of flat features [N, C] or sequences [N, L, C].
class BatchNorm1d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;
  std::string type_name() const override { return "BatchNorm1d"; }
};

using BatchNorm2dOptions = BatchNormOptions;

// The batch norm of images [N, H, W, C].
class BatchNorm2d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;
  std::string type_name() const override { return "BatchNorm2d"; }
};

}  // namespace steelyard
