// One of several inputs of a network.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/moves/input_part.h"

namespace steelyard {

// Some of a sample's values under a shape of their own: input_part() of the network's input.
class InputPart : public Module {
 public:
  explicit InputPart(SamplePart part) : part_(std::move(part)) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "InputPart"; }
  std::string description() const override;

 private:
  SamplePart part_;
};

}  // namespace steelyard
