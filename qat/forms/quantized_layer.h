// The base class of QatLinear, QatConv2d, QatConv1d, QatConvTranspose2d, QatLstm and QatFixedLstm:
// quantized weights, integer product, bias and requantization.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/forms/folded_norm.h"
#include "steelyard/qat/forms/product.h"
#include "steelyard/qat/quantizers/activation_quantizer.h"
#include "steelyard/qat/quantizers/weight_quantizer.h"

namespace steelyard::qat {

// A linear map with fake-quantized weights, an int32 bias and, after the fused activation, a
// quantized output. Forward multiplies the integers q - z themselves; backward is straight-through
// and float. Where a side is not quantized (by config or by schedule) the float operation runs on
// whatever is quantized: the same function up to float rounding.
class QuantizedLayer : public Module {
 public:
  // weight [O, ...], or as the product's parameter has it; bias [O] or undefined. `prefix` begins
  // the names of its parameters and quantizers.
  QuantizedLayer(std::shared_ptr<const Product> product, const Tensor& weight, const Tensor& bias,
                 kernels::Activation activation, const QConfig& config,
                 const std::string& prefix = "");

  Variable forward(const Variable& x, ForwardContext& context) override;

  // Adds a quantizer for inputs that arrive without codes.
  void add_input_quantizer(const QuantizerConfig& config);
  // Weights in groups multiply codes as integers, with a scale for each group's sum. It is so from
  // the start where the config has activations; elsewhere codes are multiplied as floats.
  void multiply_groups_as_integers() { integer_groups_ = true; }
  // Sets the batch norm between the product and the activation, which the layer then computes.
  void take_norm(std::shared_ptr<const FoldedNorm> norm) { norm_ = std::move(norm); }

  // Takes these as its parameters, which others have too; they are of the shapes that it has, the
  // bias undefined where it has none.
  void share_parameters(const Variable& weight, const Variable& bias);
  // Takes the quantizer of the other layer's weights as its own.
  void share_weight_quantizer(const QuantizedLayer& other);

  // Sets a function that sees every pass from now on: the input as it is multiplied, and a function
  // that computes the real values before the activation. It is called before the output is
  // computed, so that it may change the bias. Empty: none.
  using Values = std::function<Tensor()>;
  using Probe = std::function<void(const Variable& input, const Values& values)>;
  void set_probe(Probe probe) { probe_ = std::move(probe); }
  // The parameter that is added to those values: the bias, or the bias of the batch norm after the
  // product; undefined without one.
  Tensor additive_bias() const;

  Variable& weight() { return weight_; }
  Variable& bias() { return bias_; }
  // A tensor in the parameter's layout with the elements of an output channel side by side,
  // [O, ...]; the same tensor where the parameter has that layout. It is its own inverse.
  Tensor by_output_channel(const Tensor& weight) const {
    return product_->by_output_channel(Variable(weight)).value();
  }
  Tensor weight_by_output_channel() const { return by_output_channel(weight_.value()); }
  // Whether a batch norm is folded into the weights in every step.
  bool folds_norm() const { return norm_ && norm_->mode() != BatchNormFold::kNone; }
  // The weight of the product in evaluation, before quantization: f32, with a batch norm folded in.
  Tensor deployed_weight() const;
  // The codes of that weight in evaluation, by which it multiplies `input`.
  WeightCodes evaluated_weights(const Variable& input);
  // Moves elements of that weight whose codes `to` are others than `from` to `values`, where a
  // batch norm lets it; gives their number. All are by output channel, on the CPU.
  std::int64_t move_weights(const Tensor& from, const Tensor& to, const Tensor& values);
  // The layer's output in evaluation, before its quantizer, of this weight in place of
  // deployed_weight(), in float.
  Variable float_output_with(const Variable& input, const Variable& weight);
  kernels::Activation activation() const { return activation_; }
  // How inputs that arrive without codes are quantized in every pass; null where they are not.
  const observers::QScheme* dynamic_input() const {
    return dynamic_input_ ? &*dynamic_input_ : nullptr;
  }
  // Leaves such inputs in float from now on, for measurements of the weights alone.
  void drop_dynamic_input() { dynamic_input_.reset(); }
  // Whether its inputs are rows of features: a linear map, no convolution.
  bool multiplies_rows() const { return product_->name() == "quantized_linear"; }
  // Whether the scales of quantized weights are of groups within an output.
  bool has_groups() const;
  // Null where the side stays in float.
  WeightQuantizer* weight_quantizer() const { return child<WeightQuantizer>(weight_slot_); }
  ActivationQuantizer* output_quantizer() const { return child<ActivationQuantizer>(output_slot_); }
  ActivationQuantizer* input_quantizer() const { return child<ActivationQuantizer>(input_slot_); }

 protected:
  // The input with codes, where it arrives without and the layer has a quantizer for it.
  Variable with_codes(const Variable& x, ForwardContext& context);
  // The weight by output channel with the bias, as the product has them in this pass.
  ProductOperands operands(const ForwardContext& context) const;
  // The bias that int32 sums must have room for; null unless the codes of the input are multiplied
  // as integers with one scale for each output.
  std::optional<WeightBias> weight_bias(const std::shared_ptr<const QuantizedValue>& codes,
                                        const ProductOperands& operands) const;

 private:
  // The operations after a product.
  struct Epilogue {
    kernels::Activation activation = kernels::Activation::kNone;
    ActivationQuantizer* output = nullptr;
  };

  template <typename Quantizer>
  static Quantizer* child(const Slot* slot) {
    return slot == nullptr ? nullptr : static_cast<Quantizer*>(slot->module().get());
  }
  // The product with its norm, of an input that is quantized as it will be.
  Variable computed(const Variable& input, const Epilogue& epilogue, ForwardContext& context);
  Variable multiply(const Variable& x, const ProductOperands& operands, const Epilogue& epilogue,
                    ForwardContext& context);
  Variable integer_forward(const Variable& x, const QuantizedValue& codes,
                           const ProductOperands& operands, const WeightBias& int32_bias,
                           const Epilogue& epilogue, ForwardContext& context);
  // The product of codes with weights whose groups have scales of their own, and the bias.
  Variable grouped_forward(const Variable& x, const QuantizedValue& codes,
                           const ProductOperands& operands, ForwardContext& context);
  Variable float_forward(const Variable& x, const ProductOperands& operands,
                         const Epilogue& epilogue, ForwardContext& context);

  std::shared_ptr<const Product> product_;
  std::int64_t outputs_ = 0;
  Variable weight_;
  Variable bias_;
  Variable* registered_weight_ = nullptr;
  Variable* registered_bias_ = nullptr;  // null without one
  kernels::Activation activation_;
  bool integer_groups_ = false;
  std::optional<observers::QScheme> dynamic_input_;  // of inputs that arrive without codes
  std::shared_ptr<const FoldedNorm> norm_;           // owned by its own slot
  Probe probe_;
  Slot* weight_slot_ = nullptr;
  Slot* output_slot_ = nullptr;
  Slot* input_slot_ = nullptr;
};

// The float activation the enum names.
Variable apply_activation(const Variable& x, kernels::Activation activation);

}  // namespace steelyard::qat
