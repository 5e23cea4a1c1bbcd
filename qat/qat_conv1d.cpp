#include "steelyard/qat/qat_conv1d.h"

#include <stdexcept>

#include "steelyard/framework/ops/permute.h"
#include "steelyard/layers/conv_options.h"
#include "steelyard/qat/qat_moves.h"

namespace steelyard::qat {
namespace {

Variable under_shape(const Variable& x, const Shape& shape) {
  return quantized(x) ? reshape_codes(x, shape) : reshape(x, shape);
}

}  // namespace

QatConv1d::QatConv1d(const Conv1dOptions& options, const Tensor& weight, const Tensor& bias,
                     const QConfig& config, kernels::Activation activation)
    : QuantizedLayer(conv1d_product(options.geometry()), weight, bias, activation, config),
      options_(options) {}

Variable QatConv1d::forward(const Variable& x, ForwardContext& context) {
  if (x.shape().size() != 3) {
    throw std::invalid_argument("[QatConv1d] expected input [N, L, C], got " +
                                shape_string(x.shape()));
  }
  const Variable row = under_shape(x, {x.dim(0), 1, x.dim(1), x.dim(2)});
  const Variable y = QuantizedLayer::forward(row, context);
  return under_shape(y, {y.dim(0), y.dim(2), y.dim(3)});
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
