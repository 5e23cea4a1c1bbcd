#include "steelyard/framework/train/divergence.h"

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/train/gradient_clipping.h"

namespace steelyard {

void throw_diverged(std::int64_t step, const std::string& what,
                    const std::vector<NamedParameter>& parameters, const Module* teacher,
                    const Batch& batch) {
  std::string name;
  for (const NamedParameter& p : parameters) {
    if (name.empty() && has_non_finite(p.variable.value())) name = p.name;
  }
  if (teacher != nullptr) {
    for (const NamedTensor& t : module_state(*teacher)) {
      if (name.empty() && has_non_finite(t.tensor)) name = "the teacher's " + t.name;
    }
  }
  if (name.empty() && has_non_finite(batch.inputs)) name = "the batch's inputs";
  if (name.empty()) {
    if (const auto gradient = first_non_finite_gradient(parameters)) {
      name = "the gradient of " + *gradient;
    }
  }
  if (name.empty()) name = "the loss itself (weights and inputs are finite)";
  throw TrainingDiverged("step " + std::to_string(step) + ": " + what +
                         "; first non-finite tensor: " + name);
}

}  // namespace steelyard
