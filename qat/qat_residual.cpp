#include "steelyard/qat/qat_residual.h"

#include "steelyard/framework/ops/arithmetic.h"
#include "steelyard/qat/code_ops.h"
#include "steelyard/qat/quantized_layer.h"

namespace steelyard::qat {

QatResidual::QatResidual(std::shared_ptr<Module> main, std::shared_ptr<Module> shortcut,
                         kernels::Activation activation, const QuantizerConfig& output)
    : main_(register_child("", std::move(main))),
      shortcut_(register_child("downsample", std::move(shortcut))),
      activation_(activation),
      output_(std::make_shared<FakeQuantize>(output, QuantizerRole::kActivation)) {
  register_child("output_quantizer", output_);
}

Variable QatResidual::forward(const Variable& x, ForwardContext& context) {
  const Variable a = main_(x, context);
  const Variable b = shortcut_(x, context);
  if (quantized(a) && quantized(b) && output_->quantizing()) {
    return add_codes(a, b, activation_, *output_, context);
  }
  return output_->forward(apply_activation(add(a, b), activation_), context);
}

}  // namespace steelyard::qat
