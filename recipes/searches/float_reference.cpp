#include "steelyard/recipes/searches/float_reference.h"

#include <stdexcept>

#include "steelyard/framework/train/evaluate.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/runs/deployment.h"

namespace steelyard {
namespace {

// Samples that a whole file computes, one at a time.
constexpr std::int64_t kWholeSamples = 64;

}  // namespace

FloatReference::FloatReference(const Experiment& in_float, const std::optional<WholeFile>& whole,
                               const std::function<void(const std::string&)>& note)
    : float_(in_float), whole_(whole), note_(note), spans_(output_spans(*in_float.network())) {
  if (!whole_) return;
  try {
    whole_in_float_ = whole_outputs(whole_->in_float, &Experiment::validation);
  } catch (const std::runtime_error& error) {
    note_("what stands behind the cut is not compared: " + std::string(error.what()));
  }
}

Dataset FloatReference::samples(Split split) const {
  const Dataset& all = (float_.*split)();
  return compares_whole() ? spread_samples(all, kWholeSamples) : all;
}

WholeOutputs FloatReference::whole_outputs(const std::filesystem::path& onnx, Split split) const {
  const Dataset chosen = load_samples(spread_samples((float_.*split)(), kWholeSamples));
  return whole_->run(onnx, normalized(chosen.inputs, float_.normalization()), onnx_ports(float_));
}

Fidelity FloatReference::compare(Experiment& step, Split split, const std::filesystem::path& onnx) {
  const Dataset chosen = samples(split);
  const Tensor outputs = outputs_of(*step.deployed_model(), chosen, step.normalization(),
                                    step.loader_options().batch_size);
  Fidelity found = fidelity(float_.deployed_outputs(chosen.targets), outputs, spans_);
  if (!compares_whole()) return found;
  const bool known = split == &Experiment::validation;
  WholeFidelity whole = whole_fidelity(
      whole_->outputs, known ? *whole_in_float_ : whole_outputs(whole_->in_float, split),
      whole_outputs(onnx, split));
  if (whole.others.empty()) return std::move(whole.fidelity);
  if (!has_told_) {
    note_("the sizes of " + join(whole.others) +
          " follow from the samples: the values at the cut are compared in their place");
    has_told_ = true;
  }
  found.outputs.insert(found.outputs.begin(), whole.fidelity.outputs.begin(),
                       whole.fidelity.outputs.end());
  return found;
}

}  // namespace steelyard
