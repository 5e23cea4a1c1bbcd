#include "steelyard/qat/forms/stored_values.h"

#include "steelyard/framework/tensor/rng.h"
#include "steelyard/layers/init.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {
namespace {

// Whether the layer's output is its float product with the values of its weights' codes.
bool has_weights_alone(const QuantizedLayer& layer) {
  return layer.multiplies_rows() && layer.weight_quantizer() != nullptr &&
         layer.activation() == kernels::Activation::kNone && layer.dynamic_input() == nullptr &&
         layer.input_quantizer() == nullptr && layer.output_quantizer() == nullptr;
}

std::shared_ptr<Linear> with_values(QuantizedLayer& layer) {
  const NoGradGuard no_grad;
  const WeightsLater later;
  ForwardContext evaluation;
  const Tensor values = layer.weight_quantizer()->forward(layer.weight(), evaluation).value();
  const bool bias = layer.bias().defined();
  Rng none(0);
  auto linear = std::make_shared<Linear>(LinearOptions{values.dim(1), values.dim(0), bias}, none);
  for (NamedParameter& p : linear->named_parameters()) {
    p.variable.set_value(p.name == "bias" ? layer.bias().value() : values);
  }
  return linear;
}

}  // namespace

void store_weight_values(Module& model) {
  for (const auto& slot : model.children()) {
    auto* layer = dynamic_cast<QuantizedLayer*>(&**slot);
    if (layer == nullptr) {
      store_weight_values(**slot);
    } else if (has_weights_alone(*layer)) {
      slot->replace(with_values(*layer));
    }
  }
}

}  // namespace steelyard::qat
