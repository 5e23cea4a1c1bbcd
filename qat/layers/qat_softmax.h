// Softmax on codes, with ONNX Runtime's integer arithmetic.
#pragma once

#include <memory>

#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// Probabilities along the last dimension, in steps of 1/256 (1/128 with symmetric signed codes):
// `output` has codes of 8 bits and that scale (docs/numerics.md: softmax of codes).
Variable softmax_codes(const Variable& x, ActivationQuantizer& output, ForwardContext& context);

// For a float input the softmax is computed in float and then quantized.
class QatSoftmax : public Module {
 public:
  explicit QatSoftmax(const QuantizerConfig& output);
  Variable forward(const Variable& x, ForwardContext& context) override;
  std::string type_name() const override { return "QatSoftmax"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

// The quantizer of values from 0 to `limit`, whatever the data are.
void fix_shares(QuantizerConfig& output, double limit);

QuantizedForm softmax_form();

}  // namespace steelyard::qat
