#include "steelyard/framework/train/step_statistics.h"

#include <algorithm>

namespace steelyard {

std::vector<StepStatistics*> step_statistics(Module& model) {
  std::vector<StepStatistics*> found;
  for (const NamedModule& entry : model.named_modules()) {
    auto* statistics = dynamic_cast<StepStatistics*>(entry.module);
    const bool known = std::find(found.begin(), found.end(), statistics) != found.end();
    if (statistics != nullptr && !known) found.push_back(statistics);
  }
  return found;
}

}  // namespace steelyard
