#include "steelyard/qat/layers/pass_through.h"

#include <stdexcept>

#include "steelyard/framework/ops/moves/flatten.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/layers/code_ops.h"

namespace steelyard::qat {
namespace {

template <typename Layer, kernels::Activation activation>
QuantizedForm activation_form(const char* type) {
  QuantizedForm form =
      form_of<Layer>(type, FormKind::kPassesThrough,
                     [](const Layer&, const FormRequest&) -> std::shared_ptr<Module> {
                       return std::make_shared<QatActivation>(activation);
                     });
  form.activation = activation;
  return form;
}

}  // namespace

Variable QatMaxPool2d::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? max_pool2d_codes(x, geometry_) : max_pool2d(x, geometry_);
}

Variable QatFlatten::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? flatten_codes(x) : flatten(x);
}

Variable QatActivation::forward(const Variable& x, ForwardContext&) {
  return quantized(x) ? activation_codes(x, activation_) : apply_activation(x, activation_);
}

Variable QatDropout::forward(const Variable& x, ForwardContext& context) {
  if (!context.training) return x;
  if (context.rng == nullptr) {
    throw std::invalid_argument("[QatDropout] expected a random generator in training");
  }
  return quantized(x) ? dropout_codes(x, options_, *context.rng)
                      : dropout(x, options_, *context.rng);
}

QuantizedForm max_pool2d_form() {
  return form_of<MaxPool2d>(
      "MaxPool2d", FormKind::kPassesThrough,
      [](const MaxPool2d& pool, const FormRequest&) -> std::shared_ptr<Module> {
        return std::make_shared<QatMaxPool2d>(pool.options());
      });
}

QuantizedForm flatten_form() {
  return form_of<Flatten>("Flatten", FormKind::kPassesThrough,
                          [](const Flatten&, const FormRequest&) -> std::shared_ptr<Module> {
                            return std::make_shared<QatFlatten>();
                          });
}

QuantizedForm dropout_form() {
  return form_of<Dropout>("Dropout", FormKind::kPassesThrough,
                          [](const Dropout& layer, const FormRequest&) -> std::shared_ptr<Module> {
                            return std::make_shared<QatDropout>(layer.options());
                          });
}

QuantizedForm relu_form() { return activation_form<ReLU, kernels::Activation::kRelu>("ReLU"); }

QuantizedForm relu6_form() { return activation_form<ReLU6, kernels::Activation::kRelu6>("ReLU6"); }

}  // namespace steelyard::qat
