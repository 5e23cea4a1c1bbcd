// Module state that is updated from a whole step without gradients: running statistics, ranges.
//
// A step whose batch is cut into shards runs forward once for each of them, perhaps in several
// processes, and nothing that a shard sees may change what another one computes. Between
// begin_step() and end_step() such modules therefore keep their state still and gather; what was
// gathered is merged over all shards and updates the state at the end.
#pragma once

#include <vector>

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// What such modules implement, and observers too. The lists of tensors are the same, in number,
// shape and order, in every process that runs the model.
class StepStatistics {
 public:
  virtual ~StepStatistics() = default;

  // Whether forward needs statistics that it does not have yet, as before the first step. Such a
  // module first gathers them in a pass of its own, in which its output is its input.
  virtual bool needs_first_pass() const { return false; }
  virtual void begin_first_pass() {}
  virtual void end_first_pass() {}

  // From now on statistics are gathered; nothing is yet.
  virtual void begin_step() = 0;
  // f64, of the shard that ran since they were last 0: added as gradients are.
  virtual std::vector<Tensor> sums() { return {}; }
  // f32, of all shards since begin_step(): the largest of each value counts. Exact in any order.
  virtual std::vector<Tensor> maxima() { return {}; }
  // i64, likewise, asked for once maxima() hold those of all shards: added.
  virtual std::vector<Tensor> counts() { return {}; }
  // Updates the state from what the tensors hold now: that of all shards.
  virtual void end_step() = 0;
  // The step ends, and its statistics are dropped.
  virtual void abandon_step() = 0;
};

// The modules of a model that implement it, in order.
std::vector<StepStatistics*> step_statistics(Module& model);

}  // namespace steelyard
