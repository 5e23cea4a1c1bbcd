// Random omission of activations in training.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/elementwise/dropout.h"

namespace steelyard {

// Dropout with probability p in training; the identity in evaluation.
class Dropout : public Module {
 public:
  // Throws std::invalid_argument unless p is in [0, 1).
  explicit Dropout(double p) : Dropout(DropoutOptions{p}) {}
  explicit Dropout(const DropoutOptions& options);

  // Throws std::invalid_argument in training without ForwardContext::rng.
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Dropout"; }
  std::string description() const override;
  const DropoutOptions& options() const { return options_; }

 private:
  DropoutOptions options_;
};

}  // namespace steelyard
