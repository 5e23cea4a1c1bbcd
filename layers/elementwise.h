// Functions of each element as layers.
#pragma once

#include "steelyard/framework/autograd/module.h"
#include "steelyard/kernels/unary/unary.h"

namespace steelyard {

class Elementwise : public Module {
 public:
  explicit Elementwise(kernels::UnaryFunction function, double parameter = 1)
      : function_(function), parameter_(parameter) {}
  Variable forward(const Variable& x, ForwardContext& context) override;
  // "Sqrt", "Exp", ..., "Pow": as ONNX calls them.
  std::string type_name() const override;
  std::string description() const override;
  kernels::UnaryFunction function() const { return function_; }

 private:
  kernels::UnaryFunction function_;
  double parameter_;  // the exponent of kPower, alpha of kElu
};

}  // namespace steelyard
