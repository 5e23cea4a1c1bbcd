// Gradients of a batch that is divided into shards, which run one after the other, in one or
// several processes.
//
// Shard s of M takes the rows [s r / M, (s + 1) r / M) of a batch of r. Gradients, losses and sums
// of statistics are added over the shards as a fixed binary tree, so that their bits depend on M
// and not on how many processes share the work. Every rank ends with the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/comm/communicator.h"
#include "steelyard/framework/comm/shard_sum.h"
#include "steelyard/framework/data/data_loader.h"
#include "steelyard/framework/train/shards/gradient_buckets.h"
#include "steelyard/framework/train/step_statistics.h"

namespace steelyard {

class ShardedStep {
 public:
  // The mean loss over some rows of a batch; `shard` is what random numbers may depend on.
  using ShardLoss = std::function<Variable(const Batch& rows, std::int64_t shard)>;

  // The model and the ranks outlive it. Throws InputError unless `shards` and the number of ranks
  // are powers of two and every rank has a shard. Sums of gradients over the ranks begin during
  // backward of a rank's last shard, so many bytes together.
  ShardedStep(Module& model, std::int64_t shards, comm::Communicator& ranks,
              std::size_t bucket_bytes = GradientBuckets::kBytes);

  // The mean loss of the batch, f64 of rank 0; its gradients become those of the parameters, and
  // modules update their statistics (framework/train/step_statistics.h).
  Tensor run(const Batch& batch, const ShardLoss& loss);

 private:
  struct Sums;  // what is added over the shards

  std::pair<std::int64_t, std::int64_t> rows_of_shard(const Batch& batch, std::int64_t shard) const;
  bool has_rows(const Batch& batch) const;  // whether this rank's shards do
  void idle_pass(const Batch& batch, const ShardLoss& loss);
  // A pass over the batch without gradients, from which modules that have no statistics yet get
  // their first ones.
  void first_pass(const Batch& batch, const ShardLoss& loss);
  // Finds the parameters that are trained now; the others have no gradients, which nobody sends.
  void take_trained();
  void run_shards(const Batch& batch, const ShardLoss& loss, Sums& sums);
  // The backward pass of one shard. During that of this rank's last shard, gradients are sent to
  // the other ranks.
  void run_backward(const Variable& loss, const Tensor& grad_output, bool last, Sums& sums) const;
  // Adds a shard's gradient of a parameter, given by its index.
  void take_gradient(std::size_t i, bool last, Sums& sums) const;
  // `flags`: of several ranks the larger ones count, in the same message.
  void update_statistics(const std::vector<StepStatistics*>& modules, std::span<float> flags = {});

  std::vector<NamedParameter> all_;
  std::vector<NamedParameter> trained_;  // of all_, in this step
  std::vector<StepStatistics*> statistics_;
  std::int64_t shards_;
  comm::Communicator& ranks_;
  comm::ShardRange own_;
  std::size_t bucket_bytes_;
  Device device_;
};

}  // namespace steelyard
