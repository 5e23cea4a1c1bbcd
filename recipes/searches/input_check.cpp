#include "steelyard/recipes/searches/input_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/median.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

// Beyond these, statistics of a batch are not those of other samples of the same kind: other means
// by so many standard deviations, deviations by such a factor, both the median over channels.
constexpr double kFarMean = 1.5;
constexpr double kFarDeviation = 3;

}  // namespace

std::optional<std::string> input_warning(Experiment& experiment) {
  BatchNorm* norm = nullptr;
  std::string name;
  for (const NamedModule& entry : experiment.model().named_modules()) {
    norm = dynamic_cast<BatchNorm*>(entry.module);
    name = entry.name;
    if (norm != nullptr) break;
  }
  if (norm == nullptr) return std::nullopt;
  const Tensor mean = norm->running_mean().clone(), variance = norm->running_var().clone();
  std::vector<NamedTensor> before;  // a pass of training changes the statistics of all norms
  for (const NamedTensor& tensor : module_state(experiment.model())) {
    before.push_back({tensor.name, tensor.tensor.clone()});
  }
  const double momentum = norm->options().momentum;
  norm->set_momentum(1);  // so that they become those of the batch
  {
    const NoGradGuard no_grad;
    Rng rng(0);
    ForwardContext training{.training = true, .rng = &rng};
    experiment.model().forward(Variable(experiment.plain_batches()(0)), training);
  }
  norm->set_momentum(momentum);
  std::vector<double> shifts, factors;
  for (std::int64_t c = 0; c < mean.size(); ++c) {
    const auto deviation = [c](const Tensor& of) {
      return std::sqrt(std::max(static_cast<double>(of.data<float>()[c]), 1e-12));
    };
    const double own = deviation(variance);
    const double shift = static_cast<double>(norm->running_mean().data<float>()[c]) -
                         static_cast<double>(mean.data<float>()[c]);
    shifts.push_back(std::abs(shift) / own);
    factors.push_back(deviation(norm->running_var()) / own);
  }
  load_into(experiment.model(), before, "the float model");
  const double shift = median(shifts), factor = median(factors);
  if (shift < kFarMean && factor < kFarDeviation && factor > 1 / kFarDeviation) {
    return std::nullopt;
  }
  const auto rounded = [](double value) { return format_number(std::round(100 * value) / 100); };
  return "the samples look otherwise than those that the model was trained on: the first batch "
         "norm (" +
         name + ") gets means " + rounded(shift) +
         " standard deviations from those that it learned, and deviations " + rounded(factor) +
         " times as large";
}

}  // namespace steelyard
