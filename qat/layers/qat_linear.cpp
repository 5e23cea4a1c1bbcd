#include "steelyard/qat/layers/qat_linear.h"

namespace steelyard::qat {

QatLinear::QatLinear(const Linear& layer, const QConfig& config, kernels::Activation activation)
    : QatLinear(layer.options(), layer.weight().value(),
                layer.bias().defined() ? layer.bias().value() : Tensor(), config, activation) {}

QatLinear::QatLinear(const LinearOptions& options, const Tensor& weight, const Tensor& bias,
                     const QConfig& config, kernels::Activation activation)
    : QuantizedLayer(linear_product(), weight, bias, activation, config), options_(options) {}

std::string QatLinear::description() const {
  return "QatLinear(" + std::to_string(options_.in_features) + ", " +
         std::to_string(options_.out_features) + ")";
}

QuantizedForm linear_form() {
  QuantizedForm form = form_of<Linear>(
      "Linear", FormKind::kWeighted,
      [](const Linear& layer, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatLinear>(layer.options(), request.weight, request.bias,
                                           request.config, request.activation);
      });
  form.groups = [](const Module&) { return 1; };
  return form;
}

}  // namespace steelyard::qat
