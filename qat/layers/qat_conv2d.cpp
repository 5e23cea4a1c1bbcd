#include "steelyard/qat/layers/qat_conv2d.h"

namespace steelyard::qat {

QatConv2d::QatConv2d(const Conv2d& layer, const QConfig& config, kernels::Activation activation)
    : QatConv2d(layer.options(), layer.weight().value(),
                layer.bias().defined() ? layer.bias().value() : Tensor(), config, activation) {}

QatConv2d::QatConv2d(const Conv2dOptions& options, const Tensor& weight, const Tensor& bias,
                     const QConfig& config, kernels::Activation activation)
    : QuantizedLayer(conv2d_product(options.geometry()), weight, bias, activation, config),
      options_(options) {}

std::string QatConv2d::description() const {
  return "QatConv2d(" + std::to_string(options_.in_channels) + ", " +
         std::to_string(options_.out_channels) + ", kernel " +
         std::to_string(options_.kernel_size[0]) + "x" + std::to_string(options_.kernel_size[1]) +
         ")";
}

QuantizedForm conv2d_form() {
  QuantizedForm form = form_of<Conv2d>(
      "Conv2d", FormKind::kWeighted,
      [](const Conv2d& layer, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatConv2d>(layer.options(), request.weight, request.bias,
                                           request.config, request.activation);
      });
  form.groups = [](const Module& layer) {
    return dynamic_cast<const Conv2d&>(layer).options().groups;
  };
  return form;
}

}  // namespace steelyard::qat
