// Differences, quotients and extremes of two values, and arithmetic with constants: in float
// between quantizers, because ONNX Runtime has no integer kernel for them. Each is one rounding of
// exact operands, so that every runtime gives the same codes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/layers/arithmetic.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

class QatPairArithmetic : public PairArithmetic {
 public:
  QatPairArithmetic(Arithmetic operation, const QuantizerConfig& output);
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "Qat" + PairArithmetic::type_name(); }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

class QatConstantArithmetic : public ConstantArithmetic {
 public:
  QatConstantArithmetic(const ConstantArithmetic& of, const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "Qat" + ConstantArithmetic::type_name(); }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

// The forms of differences, quotients and extremes of two values, and of arithmetic with constants.
QuantizedForm pair_form();
QuantizedForm constant_form();

}  // namespace steelyard::qat
