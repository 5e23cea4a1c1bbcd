#include "steelyard/recipes/searches/quantization_step.h"

#include <algorithm>

#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"

namespace steelyard {
namespace {

constexpr std::int64_t kCorrectionSamples = 256;
// Of an epoch of training, where the samples suffice.
constexpr std::int64_t kStepsOfEpoch = 16;
constexpr std::int64_t kSmallestBatch = 4;
constexpr int kWideBits = 16;

YamlNode number(double value) { return yaml_scalar(format_number(value)); }
YamlNode whole(std::int64_t value) { return yaml_scalar(std::to_string(value)); }

}  // namespace

std::int64_t StepRecipes::training_batch() const {
  return std::min(batch, std::max(kSmallestBatch, samples / kStepsOfEpoch));
}

YamlNode StepRecipes::recipe_of(YamlNode document, const std::string& name,
                                const StepForm& form) const {
  set_entry(document, "name", yaml_scalar(document.find("name")->text + "-" + name));
  YamlNode quantize = yaml_table({{"groups", groups_of(form)}});
  if (!widens && !form.exempt.empty()) set_entry(quantize, "ignore", yaml_list(form.exempt));
  if (few_bits() && form.epochs > 0) {
    set_entry(quantize, "algorithm", yaml_table({{"method", yaml_scalar("lsq")}}));
  }
  set_entry(document, "quantize", std::move(quantize));
  YamlNode calibrate = yaml_table({});
  if (form.equalizes) set_entry(calibrate, "equalize", yaml_scalar("true"));
  if (form.corrects_biases) {
    set_entry(calibrate, "bias_correction", whole(std::min(kCorrectionSamples, samples)));
  }
  if (form.learns_rounding) {
    set_entry(calibrate, "adaround",
              yaml_table({{"samples", whole(std::min(kCorrectionSamples, samples))}}));
  }
  if (!few_bits() && form.epochs > 0) set_entry(calibrate, "freeze", yaml_scalar("true"));
  if (form.epochs > 0) {
    const std::int64_t fewer = training_batch();
    set_entry(*document.find("data"), "batch_size", whole(fewer));
    set_entry(calibrate, "batches", whole(std::max<std::int64_t>(1, calibration_samples / fewer)));
    if (freezes_norms) {
      set_entry(document, "schedule",
                yaml_table({{"freeze_bn", yaml_table({{"epoch", yaml_scalar("0")}})}}));
    }
    YamlNode& train = *document.find("train");
    set_entry(train, "epochs", whole(form.epochs));
    set_entry(train, "optimizer",
              yaml_table({{"type", yaml_scalar("adamw")}, {"lr", number(form.rate)}}));
    set_entry(train, "lr_schedule", yaml_table({{"type", yaml_scalar("cosine")}}));
    set_entry(train, "best", yaml_scalar("loss"));
  }
  set_entry(document, "calibrate", std::move(calibrate));
  return placed_at(std::move(document), "quantize");
}

YamlNode StepRecipes::groups_of(const StepForm& form) const {
  const auto quantizer = [&](int bits, const std::string& observer) {
    YamlNode node = yaml_table({{"num_bits", whole(bits)}});
    set_entry(node, "observer", yaml_scalar(observer));
    if (observer == "percentile") {
      set_entry(node, "percentile", yaml_scalar(format_number(form.percentile)));
    }
    return node;
  };
  YamlNode weights = quantizer(weight_bits, form.observers.weights);
  set_entry(weights, "symmetric", yaml_scalar("true"));
  set_entry(weights, "strategy", yaml_scalar("channel"));
  YamlNode groups = yaml_list({});
  const auto add = [&](const std::vector<std::string>& modules, int bits) {
    YamlNode activations = quantizer(bits, form.observers.activations);
    set_entry(activations, "symmetric", yaml_scalar(symmetric_activations ? "true" : "false"));
    groups.items.push_back(yaml_table({{"targets", yaml_list(modules)},
                                       {"weights", weights},
                                       {"activations", std::move(activations)}}));
  };
  if (!widens || form.exempt.empty()) {
    add(targets, activation_bits);
    return groups;
  }
  // The first group's activations are those of sums and joins that no group names.
  std::vector<std::string> others;
  for (const std::string& layer : layers) {
    if (std::count(form.exempt.begin(), form.exempt.end(), layer) == 0) {
      others.push_back(layer);
    }
  }
  if (!others.empty()) add(others, activation_bits);
  add(form.exempt, kWideBits);
  return groups;
}

}  // namespace steelyard
