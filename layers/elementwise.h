// Functions of each element as layers, and the logarithm of Softmax.
#pragma once

#include "steelyard/framework/module.h"
#include "steelyard/kernels/unary/unary.h"

namespace steelyard {

class Elementwise : public Module {
 public:
  explicit Elementwise(kernels::UnaryFunction function, double exponent = 1)
      : function_(function), exponent_(exponent) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  // "Sqrt", "Exp", "Log", "Abs", "Erf", "Tanh", "Pow".
  std::string type_name() const override;
  std::string description() const override;

 private:
  kernels::UnaryFunction function_;
  double exponent_;  // of kPower
};

// x - log(sum of exp(x)) along the last dimension.
class LogSoftmax : public Module {
 public:
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "LogSoftmax"; }
};

}  // namespace steelyard
