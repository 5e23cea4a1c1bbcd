#include "steelyard/qat/qat_add.h"

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/qat/code_ops.h"
#include "steelyard/qat/quantized_layer.h"

namespace steelyard::qat {

QatAdd::QatAdd(kernels::Activation activation, const QuantizerConfig& output)
    : activation_(activation), output_(std::make_shared<ActivationQuantizer>(output)) {
  register_child("output_quantizer", output_);
}

Variable QatAdd::join(const std::vector<Variable>& inputs, ForwardContext& context) {
  const Variable& a = inputs.at(0);
  const Variable& b = inputs.at(1);
  if (quantized(a) && quantized(b) && output_->quantizing()) {
    return add_codes(a, b, activation_, *output_, context);
  }
  return output_->forward(apply_activation(add(a, b), activation_), context);
}

QuantizedForm add_form() {
  QuantizedForm form =
      form_of<Add>("Add", FormKind::kJoins,
                   [](const Add&, const FormRequest& request) -> std::shared_ptr<Module> {
                     return std::make_shared<QatAdd>(request.activation, request.output);
                   });
  form.note = "residual sum";
  form.fuses_activation = true;
  form.float_operands = 1;
  form.reader = "a sum reads it";
  return form;
}

}  // namespace steelyard::qat
