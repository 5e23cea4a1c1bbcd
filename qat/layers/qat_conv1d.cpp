#include "steelyard/qat/layers/qat_conv1d.h"

#include "steelyard/layers/weighted/conv_options.h"
#include "steelyard/layers/weighted/one_row.h"
#include "steelyard/qat/layers/qat_moves.h"

namespace steelyard::qat {

QatConv1d::QatConv1d(const Conv1dOptions& options, const Tensor& weight, const Tensor& bias,
                     const QConfig& config, kernels::Activation activation)
    : QuantizedLayer(conv1d_product(options.geometry()), weight, bias, activation, config),
      options_(options) {}

Variable QatConv1d::forward(const Variable& x, ForwardContext& context) {
  return on_one_row(
      "QatConv1d", x, [&](const Variable& row) { return QuantizedLayer::forward(row, context); },
      under_shape);
}

std::string QatConv1d::description() const {
  return conv_options::described("QatConv1d", options_);
}

QuantizedForm conv1d_form() {
  QuantizedForm form = form_of<Conv1d>(
      "Conv1d", FormKind::kWeighted, [](const Conv1d& layer, const FormRequest& request) {
        return std::shared_ptr<Module>(std::make_shared<QatConv1d>(
            layer.options(), request.weight, request.bias, request.config, request.activation));
      });
  form.groups = [](const Module& layer) {
    return dynamic_cast<const Conv1d&>(layer).options().groups;
  };
  return form;
}

}  // namespace steelyard::qat
