#include "steelyard/qat/model/named_quantizers.h"

#include <set>

namespace steelyard::qat {

std::vector<NamedQuantizer> named_quantizers(Module& model) {
  std::vector<NamedQuantizer> found;
  std::set<const FakeQuantize*> known;
  for (const NamedModule& entry : model.named_modules()) {
    auto* quantizer = dynamic_cast<FakeQuantize*>(entry.module);
    if (quantizer == nullptr || !known.insert(quantizer).second) continue;
    found.push_back({entry.name, quantizer});
  }
  return found;
}

std::string never_observed_text(Module& model, const NeverObserved& error) {
  for (const NamedQuantizer& entry : named_quantizers(model)) {
    if (entry.quantizer == error.quantizer()) {
      return "the quantizer " + entry.name + " never observed anything";
    }
  }
  return error.what();
}

}  // namespace steelyard::qat
