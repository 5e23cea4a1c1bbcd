// What QatLinear and QatConv2d share: quantized weights, integer product, bias and requantization.
#pragma once

#include <memory>
#include <string>

#include "kernels/integer.h"
#include "qat/fake_quantize.h"
#include "qat/product.h"

namespace steelyard::qat {

// A linear map with fake-quantized weights, an int32 bias and, after the fused activation, a
// quantized output. Forward multiplies the integers q - z themselves; backward is straight-through
// and float. Where a side is not quantized (by config or by schedule) the float operation runs on
// whatever is quantized: the same function up to float rounding.
class QuantizedLayer : public Module {
 public:
  // weight [O, ...]; bias [O] or undefined.
  QuantizedLayer(std::shared_ptr<const Product> product, const Tensor& weight, const Tensor& bias,
                 kernels::Activation activation, const QConfig& config);

  Variable forward(const Variable& x, ForwardContext& context) override;

  // Gives the layer a quantizer for inputs that arrive without codes.
  void add_input_quantizer(const QuantizerConfig& config);

  Variable& weight() { return weight_; }
  Variable& bias() { return bias_; }
  kernels::Activation activation() const { return activation_; }
  // Null where the side stays in float.
  FakeQuantize* weight_quantizer() const { return quantizer(weight_slot_); }
  FakeQuantize* output_quantizer() const { return quantizer(output_slot_); }
  FakeQuantize* input_quantizer() const { return quantizer(input_slot_); }

 private:
  static FakeQuantize* quantizer(const Slot* slot);
  void update_weight_scale(float input_scale);
  Variable integer_forward(const Variable& x, const QuantizedValue& codes, ForwardContext& context);
  Variable float_forward(const Variable& x, ForwardContext& context);

  std::shared_ptr<const Product> product_;
  Variable weight_;
  Variable bias_;
  kernels::Activation activation_;
  Slot* weight_slot_ = nullptr;
  Slot* output_slot_ = nullptr;
  Slot* input_slot_ = nullptr;
};

// The float activation the enum names.
Variable apply_activation(const Variable& x, kernels::Activation activation);

}  // namespace steelyard::qat
