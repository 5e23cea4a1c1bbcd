// Products of two values, element by element or of matrices, whose output has a quantizer of its
// own: gates of squeeze-and-excite blocks, attention.
#pragma once

#include <memory>
#include <vector>

#include "steelyard/layers/containers/graph.h"
#include "steelyard/qat/forms/quantized_form.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"

namespace steelyard::qat {

// a * b of codes of 8 bits or fewer, whose shapes broadcast, quantized by `output`
// (docs/numerics.md: products of values).
Variable multiply_codes(const Variable& a, const Variable& b, ActivationQuantizer& output,
                        ForwardContext& context);

// a [..., m, k] times b [..., k, n] of such codes in exact integers, quantized by `output`
// (docs/numerics.md: products of values).
Variable multiply_matrices(const Variable& a, const Variable& b, ActivationQuantizer& output,
                           ForwardContext& context);

// With a float operand the product is computed in float and then quantized.
class QatMul : public JoinModule {
 public:
  explicit QatMul(const QuantizerConfig& output);
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatMul"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

// The product of two matrices; with a float operand it is computed in float and then quantized.
class QatMatMul : public JoinModule {
 public:
  explicit QatMatMul(const QuantizerConfig& output);
  Variable join(const std::vector<Variable>& inputs, ForwardContext& context) override;
  std::string type_name() const override { return "QatMatMul"; }

 private:
  std::shared_ptr<ActivationQuantizer> output_;
};

QuantizedForm mul_form();
QuantizedForm matmul_form();

}  // namespace steelyard::qat
