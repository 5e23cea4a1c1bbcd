// Experiment: ranges, rounding and biases from data, before the first step.
#include <algorithm>

#include "steelyard/qat/ptq/bias_correction.h"
#include "steelyard/qat/ptq/calibrate.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {
namespace {

constexpr std::int64_t kDefaultBatches = 32;

}  // namespace

std::int64_t Experiment::default_calibration_batches() const {
  return std::min(kDefaultBatches, batches_per_epoch(train_, loader_options_));
}

// Written into the recipe, so that the run's folder says the number.
void Experiment::choose_calibration_batches(const Registries& registries) {
  if (!recipe_.calibrates || recipe_.calibrate_batches) return;
  const std::int64_t batches = default_calibration_batches();
  YamlNode document = recipe_.given;
  set_entry(*document.find("calibrate"), "batches", yaml_scalar(std::to_string(batches)));
  recipe_ = read_recipe(std::move(document), registries);
  if (batches == kDefaultBatches) return;
  notes_.push_back("calibrate.batches: " + std::to_string(batches) +
                   ", all of an epoch (the default is " + std::to_string(kDefaultBatches) + ")");
}

void Experiment::require_calibration_samples() {
  if (recipe_.correct_biases) {
    const std::vector<std::string> unbiased = qat::layers_without_bias(*model_);
    if (!unbiased.empty()) {
      notes_.push_back("calibrate.bias_correction: " + std::to_string(unbiased.size()) +
                       " quantized layers have no bias to correct, the first is " + unbiased[0]);
    }
    require_samples("bias_correction", "bias_correction", *recipe_.correct_biases);
  }
  if (recipe_.adaround) require_samples("adaround", "adaround.samples", recipe_.adaround->samples);
}

void Experiment::require_samples(const char* key, const std::string& path,
                                 std::int64_t samples) const {
  if (train_.size() == 0 || samples <= train_.size()) return;  // a trained model
  fail_at(place("calibrate", key), "calibrate." + path + ": expected at most the " +
                                       std::to_string(train_.size()) + " training samples, got " +
                                       std::to_string(samples));
}

std::function<Tensor(std::int64_t)> Experiment::plain_batches() const {
  return plain_batches(loader_options_.batch_size);
}

std::function<Tensor(std::int64_t)> Experiment::plain_batches(std::int64_t samples) const {
  LoaderOptions plain = loader_options_;
  plain.augment = {};
  plain.batch_size = samples;
  return [this, plain, order = epoch_order(train_, plain, 0)](std::int64_t batch) {
    return make_batch(train_, plain, order, 0, batch).inputs.to(device_);
  };
}

void Experiment::calibrate(std::int64_t batches) {
  qat::calibrate(*model_, batches, plain_batches());
  Tensor correction_inputs;
  qat::FloatMeans wanted;
  if (const auto& samples = recipe_.correct_biases) {  // before rounding moves the float weights
    correction_inputs = plain_batches(*samples)(0);
    wanted = qat::float_means(*model_, correction_inputs);
  }
  bool changed = false;
  auto scales = qat::WeightScales::kFollow;
  if (recipe_.adaround) {
    qat::AdaRoundOptions options = *recipe_.adaround;
    options.seed = static_cast<std::uint64_t>(recipe_.seed);
    rounding_ = qat::learn_rounding(*model_, plain_batches(options.samples)(0), options);
    changed = true;
    scales = qat::WeightScales::kKeep;  // the codes are those of these scales
  }
  if (recipe_.correct_biases) {
    changed |= qat::correct_biases(*model_, correction_inputs, std::move(wanted), scales) > 0;
  }
  if (changed) qat::measure_again(*model_, batches, plain_batches(), scales);
}

}  // namespace steelyard
