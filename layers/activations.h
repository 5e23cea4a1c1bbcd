// Activation layers.
#pragma once

#include "framework/module.h"

namespace steelyard {

// max(x, 0).
class ReLU : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "ReLU"; }
};

// min(max(x, 0), 6).
class ReLU6 : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "ReLU6"; }
};

}  // namespace steelyard
