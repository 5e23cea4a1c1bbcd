#include "steelyard/qat/prepare/plan_rows.h"

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

// The model itself has an empty path.
PlanRow plan_row(const std::string& path, const std::string& tensor, const std::string& quantized,
                 const std::string& observer, const std::string& note) {
  return {path.empty() ? "(model)" : path, tensor, quantized, observer, note};
}

// A tensor with a quantizer.
PlanRow plan_row(const std::string& path, const std::string& tensor, const QuantizerConfig& config,
                 const std::string& note) {
  PlanRow row =
      plan_row(path, tensor, observers::to_string(config.scheme), range_text(config), note);
  row.scheme = config.scheme;
  return row;
}

class LayerRows {
 public:
  LayerRows(const Decisions& all, const Decision& decision, const LayerFacts& facts,
            BatchNormFold bn_fold)
      : all_(all),
        d_(decision),
        facts_(facts),
        bn_fold_(bn_fold),
        path_(all.nodes[decision.node].path) {}

  std::vector<PlanRow> left_in_float() {
    add(path_, "-", "float", "-", d_.reason);
    for (const auto& follower : {d_.norm, d_.activation}) {
      if (follower) add(all_.nodes[*follower].path, "-", "float", "-", "follows " + path_);
    }
    return std::move(rows_);
  }

  std::vector<PlanRow> quantized() {
    add_input();
    add_weight();
    add_bias();
    add_output();
    add_followers();
    const QuantizedForm& form = *all_.nodes[d_.node].form;
    add_more(form.more_weights, d_.config.weights);
    add_more(form.more_activations, d_.config.activations);
    return std::move(rows_);
  }

 private:
  void add(const std::string& path, const std::string& tensor, const std::string& quantized,
           const std::string& observer, const std::string& note) {
    rows_.push_back(plan_row(path, tensor, quantized, observer, note));
  }
  void add(const std::string& tensor, const QuantizerConfig& config, const std::string& note) {
    rows_.push_back(plan_row(path_, tensor, config, note));
  }

  bool folds() const { return d_.norm && bn_fold_ != BatchNormFold::kNone; }

  void add_input() {
    if (d_.quantizes_input) {
      add("input", *d_.config.activations,
          d_.in.kind == Flow::Kind::kFloat ? "its producer is in float"
                                           : "if the input arrives in float");
    }
    if (!d_.config.weights || !is_dynamic(d_.config)) return;
    const bool arrives = d_.in.kind == Flow::Kind::kQuantized;
    add(path_, "input",
        arrives ? "as " + d_.in.source : observers::to_string(d_.config.activations->scheme), "-",
        arrives ? "" : "if the input arrives in float");
  }

  void add_weight() {
    if (!d_.config.weights) return add(path_, "weight", "float", "-", "no weights in its group");
    if (!facts_.codes_of.empty()) return add(path_, "weight", "as " + facts_.codes_of, "-", "");
    add("weight", *d_.config.weights,
        folds() ? all_.nodes[*d_.norm].path + " folded in" + fold_note(bn_fold_) : "");
  }

  void add_bias() {
    if (!facts_.has_bias && !folds()) return;
    const std::optional<QuantizerConfig>& weights = d_.config.weights;
    const bool groups = weights && weights->scheme.granularity == kernels::Granularity::kGroup;
    const bool reads_codes = d_.in.kind == Flow::Kind::kQuantized;
    const bool integers = weights && (d_.config.activations || (reads_codes && !groups));
    const bool scaled_sums = is_dynamic(d_.config) || facts_.has_groups;
    add(path_, "bias", integers && !scaled_sums ? "int32, scale s_x * s_w" : "float", "-",
        integers && scaled_sums ? "added to the scaled sums" : "");
  }

  void add_output() {
    if (!d_.config.activations) {
      add(path_, "output", "float", "-", d_.note.empty() ? "no activations in its group" : d_.note);
    } else if (!d_.note.empty()) {
      add(path_, "output", "float", "-", d_.note);
    } else {
      add("output", *d_.config.activations,
          d_.activation ? "after " + all_.nodes[*d_.activation].path : "");
    }
  }

  void add_followers() {
    if (d_.norm) {
      add(all_.nodes[*d_.norm].path, "-", folds() ? "-" : "float", "-",
          folds() ? "folded into " + path_ + fold_note(bn_fold_)
                  : "between product and output of " + path_);
    }
    if (d_.activation) {
      add(all_.nodes[*d_.activation].path, "-", "-", "-", "fused into " + path_);
    }
  }

  void add_more(const std::vector<std::string>& tensors,
                const std::optional<QuantizerConfig>& config) {
    if (!config) return;
    for (const std::string& tensor : tensors) add(tensor, *config, "");
  }

  const Decisions& all_;
  const Decision& d_;
  const LayerFacts& facts_;
  BatchNormFold bn_fold_;
  const std::string& path_;
  std::vector<PlanRow> rows_;
};

}  // namespace

std::vector<PlanRow> rows_of(const Decisions& all, const Decision& d, const LayerFacts& facts,
                             BatchNormFold bn_fold) {
  using Kind = Decision::Kind;
  const std::string& path = all.nodes[d.node].path;
  const bool shared = d.in.kind == Flow::Kind::kQuantized || d.in.kind == Flow::Kind::kModelInput;
  switch (d.kind) {
    case Kind::kWeighted:
      return LayerRows(all, d, facts, bn_fold).quantized();
    case Kind::kWeightedFloat:
      return LayerRows(all, d, facts, bn_fold).left_in_float();
    case Kind::kPassesThrough:
      return {plan_row(path, "output", shared ? "as " + d.in.source : "float", "-",
                       shared ? "" : "its input is in float")};
    case Kind::kOwnOutput:
      return {plan_row(path, "output", d.output, d.note)};
    case Kind::kContinues:
      return {plan_row(path, "output", "float", "-", "quantized after " + d.reason)};
    case Kind::kFloat:
      return {plan_row(path, "output", "float", "-", d.reason)};
    case Kind::kNoForm:
      return {plan_row(path, "-", "float", "-", d.reason)};
    case Kind::kContainer:
      return {plan_row(
          path, "-", "-", "-",
          (*all.nodes[d.node].slot)->type_name() + ": its children are quantized one by one")};
    case Kind::kIdentity:
      break;
  }
  return {};
}

PlanRow input_row(const QuantizerConfig& config) {
  return plan_row(kInputName, "output", config, "the model's input");
}

}  // namespace steelyard::qat
