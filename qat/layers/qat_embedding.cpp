#include "steelyard/qat/layers/qat_embedding.h"

#include "steelyard/framework/ops/products/embedding.h"

namespace steelyard::qat {

QatEmbedding::QatEmbedding(const Embedding& layer, const FormRequest& request)
    : QuantizedLayer(linear_product(), request.weight, Tensor(), kernels::Activation::kNone,
                     request.config),
      options_(layer.options()) {}

Variable QatEmbedding::forward(const Variable& x, ForwardContext& context) {
  return embedding(x, weight_quantizer()->forward(weight(), context));
}

std::string QatEmbedding::description() const {
  return "QatEmbedding(" + std::to_string(options_.count) + ", " + std::to_string(options_.width) +
         ")";
}

QuantizedForm embedding_form() {
  QuantizedForm form = form_of<Embedding>(
      "Embedding", FormKind::kWeighted,
      [](const Embedding& layer, const FormRequest& request) -> std::shared_ptr<Module> {
        return std::make_shared<QatEmbedding>(layer, request);
      });
  form.is_linear = false;
  form.weights_alone = true;
  form.weights = [](QuantizerConfig& weights) {
    if (weights.scheme.granularity != kernels::Granularity::kTensor) {
      weights.scheme.granularity = kernels::Granularity::kChannel;  // a row is no longer than that
    }
  };
  return form;
}

}  // namespace steelyard::qat
