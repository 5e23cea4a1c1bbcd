#include "steelyard/qat/layers/qat_add.h"

#include <utility>

#include "steelyard/framework/ops/elementwise/arithmetic.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/layers/code_ops.h"

namespace steelyard::qat {
namespace {

QuantizedForm sum_form(std::string type, QatAdd::Shapes shapes) {
  QuantizedForm form;
  form.type = std::move(type);
  form.kind = FormKind::kJoins;
  form.make = [shapes](const Module&, const FormRequest& request) -> std::shared_ptr<Module> {
    return std::make_shared<QatAdd>(request.activation, request.output, shapes);
  };
  form.fuses_activation = true;
  form.float_operands = 1;
  form.reader = "a sum reads it";
  return form;
}

}  // namespace

QatAdd::QatAdd(kernels::Activation activation, const QuantizerConfig& output, Shapes shapes)
    : activation_(activation),
      shapes_(shapes),
      output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatAdd::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  Variable a = inputs.at(0), b = inputs.at(1);
  const bool broadcast = shapes_ == Shapes::kBroadcast;
  // ONNX Runtime scales an operand that repeats first, wherever it stands; QLinearAdd's second one
  // is scaled first.
  if (broadcast && shape_size(a.shape()) < shape_size(b.shape())) std::swap(a, b);
  const bool fits = broadcast || a.shape() == b.shape();  // else add() says so
  if (fits && quantized(a) && quantized(b) && output_->quantizing()) {
    return add_codes(a, b, activation_, *output_, context);
  }
  const Variable sum = broadcast ? broadcast_add(a, b) : add(a, b);
  return output_->forward(apply_activation(sum, activation_), context);
}

QuantizedForm add_form() {
  QuantizedForm form = sum_form("Add", QatAdd::Shapes::kEqual);
  form.matches = [](const Module& module) { return dynamic_cast<const Add*>(&module) != nullptr; };
  form.note = "residual sum";
  return form;
}

QuantizedForm broadcast_add_form() {
  QuantizedForm form = sum_form("BroadcastAdd", QatAdd::Shapes::kBroadcast);
  form.matches = [](const Module& module) {
    const auto* pair = dynamic_cast<const PairArithmetic*>(&module);
    return pair != nullptr && pair->operation() == Arithmetic::kAdd;
  };
  form.note = "of the sum";
  return form;
}

}  // namespace steelyard::qat
