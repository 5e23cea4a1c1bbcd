#include "steelyard/qat/model/named_quantizers.h"

namespace steelyard::qat {

std::vector<NamedQuantizer> named_quantizers(Module& model) {
  std::vector<NamedQuantizer> found;
  for (const NamedModule& entry : model.named_modules()) {
    if (auto* quantizer = dynamic_cast<FakeQuantize*>(entry.module)) {
      found.push_back({entry.name, quantizer});
    }
  }
  return found;
}

}  // namespace steelyard::qat
