#include "steelyard/qat/model/observe_weights.h"

#include <set>
#include <utility>
#include <vector>

#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/model/named_quantizers.h"

namespace steelyard::qat {

void observe_weights(Module& model, const Shape& sample) {
  ForwardContext context{.calibrating = true};
  std::set<FakeQuantize*> weights;
  for (const NamedModule& entry : model.named_modules()) {
    auto* layer = dynamic_cast<QuantizedLayer*>(entry.module);
    FakeQuantize* quantizer = layer != nullptr ? layer->weight_quantizer() : nullptr;
    if (quantizer != nullptr && quantizer->observes(context)) weights.insert(quantizer);
  }
  if (weights.empty()) return;
  const std::vector<NamedQuantizer> quantizers = named_quantizers(model);
  for (const NamedQuantizer& entry : quantizers) {
    if (!entry.quantizer->observed()) return;
  }
  std::vector<std::pair<FakeQuantize*, bool>> observing;
  for (const NamedQuantizer& entry : quantizers) {
    observing.emplace_back(entry.quantizer, entry.quantizer->observing());
    entry.quantizer->set_observing(weights.contains(entry.quantizer));
  }
  for (FakeQuantize* quantizer : weights) quantizer->forget();
  const NoGradGuard no_grad;
  model.forward(Variable(Tensor::zeros(sample, DType::kF32, device_of(model))), context).value();
  for (const auto& [quantizer, on] : observing) quantizer->set_observing(on);
}

}  // namespace steelyard::qat
