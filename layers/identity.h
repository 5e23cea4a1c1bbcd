// The identity layer.
#pragma once

#include "steelyard/framework/autograd/module.h"

namespace steelyard {

// Returns its input, the same variable.
class Identity : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Identity"; }
};

}  // namespace steelyard
