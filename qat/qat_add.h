// Sum whose output has a quantizer of its own.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/graph.h"
#include "steelyard/qat/activation_quantizer.h"
#include "steelyard/qat/quantized_form.h"

namespace steelyard::qat {

// y = quantize(activation(a + b)). Two quantized operands are added as integers (docs/numerics.md:
// what ONNX Runtime computes, QLinearAdd); with a float operand the sum is computed in float.
class QatAdd : public JoinModule {
 public:
  QatAdd(kernels::Activation activation, const QuantizerConfig& output);

  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatAdd"; }

 private:
  kernels::Activation activation_;
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm add_form();

}  // namespace steelyard::qat
