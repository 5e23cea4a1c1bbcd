#include "steelyard/qat/prepare/layer_rows.h"

namespace steelyard::qat {
namespace {

// How the norm's fold differs from the default one.
std::string fold_note(BatchNormFold bn_fold) {
  switch (bn_fold) {
    case BatchNormFold::kBatchCorrected:
      return " (batch_corrected)";
    case BatchNormFold::kOneConvolution:
      return " (one_convolution)";
    case BatchNormFold::kFrozen:
    case BatchNormFold::kNone:
      break;
  }
  return "";
}

// How the range is found: "mse", "mse, learned".
std::string range_text(const QuantizerConfig& config) {
  switch (config.learning) {
    case Learning::kNothing:
      return config.observer.type;
    case Learning::kScale:
    case Learning::kClipping:
      return config.observer.type + ", learned";
    case Learning::kScaleAndZeroPoint:
      return config.observer.type +
             (config.scheme.symmetric ? ", learned" : ", learned with zero point");
  }
  return "";
}

}  // namespace

PlanRow plan_row(const std::string& path, const std::string& tensor, const std::string& quantized,
                 const std::string& observer, const std::string& note) {
  return {path.empty() ? "(model)" : path, tensor, quantized, observer, note};
}

PlanRow plan_row(const std::string& path, const std::string& tensor, const QuantizerConfig& config,
                 const std::string& note) {
  return plan_row(path, tensor, observers::to_string(config.scheme), range_text(config), note);
}

std::vector<PlanRow> LayerRows::in_float(const std::string& reason) const {
  std::vector<PlanRow> rows{plan_row(path, "-", "float", "-", reason)};
  for (const std::string& follower : {norm, activation}) {
    if (!follower.empty()) rows.push_back(plan_row(follower, "-", "float", "-", "follows " + path));
  }
  return rows;
}

std::vector<PlanRow> LayerRows::quantized(const QConfig& config, bool has_bias, bool scaled_sums,
                                          BatchNormFold bn_fold, bool reads_codes,
                                          const std::string& float_output) const {
  const bool folds = !norm.empty() && bn_fold != BatchNormFold::kNone;
  std::vector<PlanRow> rows;
  rows.push_back(config.weights
                     ? plan_row(path, "weight", *config.weights,
                                folds ? norm + " folded in" + fold_note(bn_fold) : "")
                     : plan_row(path, "weight", "float", "-", "no weights in its group"));
  if (has_bias || folds) {
    const bool groups =
        config.weights && config.weights->scheme.granularity == kernels::Granularity::kGroup;
    const bool integers = config.weights && (config.activations || (reads_codes && !groups));
    rows.push_back(plan_row(path, "bias",
                            integers && !scaled_sums ? "int32, scale s_x * s_w" : "float", "-",
                            integers && scaled_sums ? "added to the scaled sums" : ""));
  }
  if (!config.activations || !float_output.empty()) {
    rows.push_back(plan_row(path, "output", "float", "-",
                            config.activations ? float_output : "no activations in its group"));
  } else {
    rows.push_back(plan_row(path, "output", *config.activations,
                            activation.empty() ? "" : "after " + activation));
  }
  if (!norm.empty()) {
    rows.push_back(plan_row(norm, "-", folds ? "-" : "float", "-",
                            folds ? "folded into " + path + fold_note(bn_fold)
                                  : "between product and output of " + path));
  }
  if (!activation.empty())
    rows.push_back(plan_row(activation, "-", "-", "-", "fused into " + path));
  return rows;
}

}  // namespace steelyard::qat
