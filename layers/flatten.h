// The layer that turns images into rows of features.
#pragma once

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// [N, H, W, C] -> [N, C*H*W] in NCHW order; rank 2 passes.
class Flatten : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Flatten"; }
};

}  // namespace steelyard
