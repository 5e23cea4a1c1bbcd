#include "steelyard/qat/layers/qat_conv_transpose2d.h"

#include "steelyard/layers/weighted/conv_options.h"
#include "steelyard/qat/layers/conv_transpose2d_product.h"

namespace steelyard::qat {

QatConvTranspose2d::QatConvTranspose2d(const ConvTranspose2dOptions& options, const Tensor& weight,
                                       const Tensor& bias, const QConfig& config,
                                       kernels::Activation activation)
    : QuantizedLayer(conv_transpose2d_product(options.geometry()), weight, bias, activation,
                     config),
      options_(options) {}

std::string QatConvTranspose2d::description() const {
  return conv_options::described("QatConvTranspose2d", options_);
}

QuantizedForm conv_transpose2d_form() {
  QuantizedForm form = form_of<ConvTranspose2d>(
      "ConvTranspose2d", FormKind::kWeighted,
      [](const ConvTranspose2d& layer, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatConvTranspose2d>(layer.options(), request.weight, request.bias,
                                                    request.config, request.activation);
      });
  form.groups = [](const Module& layer) {
    return dynamic_cast<const ConvTranspose2d&>(layer).options().groups;
  };
  form.by_output_channel = [groups = form.groups](const Module& layer, const Tensor& weight) {
    return swapped_channels(weight, groups(layer));
  };
  form.profiles = FormProfiles::kAll;
  form.refusal = [](const Module& module, const QuantizerConfig& output) -> std::string {
    const auto& options = dynamic_cast<const ConvTranspose2d&>(module).options();
    const bool plain = options.groups == 1 && options.dilation == std::array<std::int64_t, 2>{1, 1};
    return plain || !kernels::is_fixed_point(output.rounding) ? "" : "with groups or dilation";
  };
  return form;
}

}  // namespace steelyard::qat
