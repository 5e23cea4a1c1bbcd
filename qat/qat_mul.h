// Products of two values whose output has a quantizer of its own: gates of squeeze-and-excite
// blocks.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/graph.h"
#include "steelyard/qat/activation_quantizer.h"
#include "steelyard/qat/quantized_form.h"

namespace steelyard::qat {

// a * b of codes of 8 bits or fewer, whose shapes broadcast, quantized by `output`
// (docs/numerics.md: products of values).
Variable multiply_codes(const Variable& a, const Variable& b, ActivationQuantizer& output,
                        ForwardContext& context);

// A float operand makes the product a float one, which is then quantized.
class QatMul : public JoinModule {
 public:
  explicit QatMul(const QuantizerConfig& output);
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatMul"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm mul_form();

}  // namespace steelyard::qat
