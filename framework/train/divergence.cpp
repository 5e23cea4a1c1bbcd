#include "steelyard/framework/train/divergence.h"

#include <algorithm>
#include <cmath>

#include "steelyard/framework/autograd/tape_trace.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/train/gradient_clipping.h"

namespace steelyard {
namespace {

std::int64_t first_non_finite_row(const Tensor& x) {
  const Tensor host = x.to(Device{}).to(DType::kF32);
  const auto values = host.span<float>();
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  const std::int64_t rows = host.rank() == 0 ? 1 : host.dim(0);
  return (bad - values.begin()) / (host.size() / rows);
}

}  // namespace

std::optional<NonFiniteOutput> first_non_finite_output(const std::function<void()>& pass) {
  std::optional<NonFiniteOutput> first;
  const NoGradGuard no_grad;
  const OutputWatch watch([&](const std::string& module, const Variable& output) {
    if (first || module.empty() || !has_non_finite(output.value())) return;
    first = {module, first_non_finite_row(output.value())};
  });
  try {
    pass();
  } catch (const std::exception&) {
    // The fault that is to be found, perhaps, or no memory for a second pass.
  }
  return first;
}

void throw_diverged(std::int64_t step, const std::string& what,
                    const std::vector<NamedParameter>& parameters, const Module* teacher,
                    const Batch& batch, const std::function<void()>& pass) {
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
    if (const auto output = first_non_finite_output(pass)) name = "the output of " + output->module;
  }
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
