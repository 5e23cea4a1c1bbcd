#include "steelyard/recipes/searches/input_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

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

constexpr std::int64_t kMostCompared = 64;  // samples

// Where all samples are equal, or each of them has one value only.
std::optional<std::string> sameness(const Experiment& experiment) {
  const Tensor inputs = load_samples(spread_samples(experiment.train(), kMostCompared)).inputs;
  const std::int64_t count = inputs.dim(0), bytes = inputs.bytes() / count;
  if (count < 2 || bytes == 0) return std::nullopt;
  const std::int64_t item = bytes / (inputs.size() / count);
  const auto* const first = static_cast<const char*>(inputs.raw());
  bool equal = true, constant = inputs.size() > count;
  for (std::int64_t i = 0; i < count; ++i) {
    const char* const sample = first + i * bytes;
    equal = equal && std::memcmp(sample, first, static_cast<std::size_t>(bytes)) == 0;
    // A sample of one value is equal to itself, moved by a value.
    constant =
        constant && std::memcmp(sample, sample + item, static_cast<std::size_t>(bytes - item)) == 0;
  }
  if (!equal && !constant) return std::nullopt;
  return equal ? "all samples are equal: ranges and errors are those of one input"
               : "each sample has one value only: no input like this tells ranges or errors";
}

std::optional<std::string> strange_statistics(Experiment& experiment) {
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

}  // namespace

std::vector<std::string> input_warnings(Experiment& experiment) {
  std::vector<std::string> found;
  if (const auto same = sameness(experiment)) found.push_back(*same);
  if (const auto strange = strange_statistics(experiment)) {
    found.push_back(*strange + " (--mean, --std and --range say how images are normalized)");
  }
  return found;
}

}  // namespace steelyard
