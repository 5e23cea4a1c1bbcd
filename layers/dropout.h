// Random omission of activations in training.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/fields.h"

namespace steelyard {

struct DropoutOptions {
  double p = 0.5;
  static constexpr auto fields() { return std::tuple(field("p", &DropoutOptions::p)); }
};

// Dropout with probability p in training; the identity in evaluation.
class Dropout : public Module {
 public:
  // Throws std::invalid_argument unless p is in [0, 1).
  explicit Dropout(double p);

  // Throws std::invalid_argument in training without ForwardContext::rng.
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Dropout"; }
  std::string description() const override;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace steelyard
