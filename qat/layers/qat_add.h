// Sum whose output has a quantizer of its own.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/containers/graph.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// y = quantize(activation(a + b)). Two quantized operands are added as integers (docs/numerics.md:
// what ONNX Runtime computes, QLinearAdd); with a float operand the sum is computed in float.
class QatAdd : public JoinModule {
 public:
  enum class Shapes { kEqual, kBroadcast };
  QatAdd(kernels::Activation activation, const QuantizerConfig& output,
         Shapes shapes = Shapes::kEqual);

  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatAdd"; }

 private:
  kernels::Activation activation_;
  Shapes shapes_;
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm add_form();
QuantizedForm broadcast_add_form();

}  // namespace steelyard::qat
