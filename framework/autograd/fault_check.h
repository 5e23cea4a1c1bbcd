// Faults that values hide: NaN among codes, which a model counts while it computes, and steps of
// parameters that it no longer has.
#pragma once

namespace steelyard {

// Looks at a model's counters where a training loop comes by. The model attaches it to the nodes of
// its parameters and outputs (GradNode::check). Each throws where something was counted since the
// last look.
class FaultCheck {
 public:
  virtual ~FaultCheck() = default;
  // At the end of a backward pass through such a node. Must not wait for a GPU: the pass may be
  // part of a captured step.
  virtual void after_backward() = 0;
  // Before Optimizer::step() changes such a parameter.
  virtual void before_step() = 0;
};

}  // namespace steelyard
