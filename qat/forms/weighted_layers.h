// The layers of a model that have quantized weights.
#pragma once

#include <string>
#include <vector>

#include "steelyard/qat/forms/quantized_layer.h"

namespace steelyard::qat {

struct NamedLayer {
  std::string name;  // its path
  QuantizedLayer* layer;
};

inline std::vector<NamedLayer> layers_with_quantized_weights(Module& model) {
  std::vector<NamedLayer> layers;
  for (const NamedModule& entry : model.named_modules()) {
    auto* layer = dynamic_cast<QuantizedLayer*>(entry.module);
    if (layer != nullptr && layer->weight_quantizer() != nullptr) {
      layers.push_back({entry.name, layer});
    }
  }
  return layers;
}

}  // namespace steelyard::qat
