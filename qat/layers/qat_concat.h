// Concatenation whose output has a quantizer of its own.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/containers/graph.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// The quantized variables joined along their last dimension, on the grid of `output`: each code is
// dequantized and quantized anew, a copy where scale and zero point are the output's
// (docs/numerics.md).
Variable concat_codes(const std::vector<Variable>& inputs, ActivationQuantizer& output,
                      ForwardContext& context);

// y = quantize(concat(x1, x2, ...)); with a float operand the concatenation is one of floats.
class QatCat : public JoinModule {
 public:
  explicit QatCat(const QuantizerConfig& output);

  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatCat"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm cat_form();

}  // namespace steelyard::qat
