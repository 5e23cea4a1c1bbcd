#include "steelyard/qat/prepare/decisions.h"

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/layers/output_parts.h"
#include "steelyard/qat/layers/form_table.h"
#include "steelyard/qat/quantizers/words.h"

namespace steelyard::qat {
namespace {

constexpr const char* kModelOutput = "the model's output (profile tensorrt)";

template <typename T>
bool holds(const Slot& slot) {
  return dynamic_cast<const T*>(slot.module().get()) != nullptr;
}

// "Linear, Conv2d and Pointwise": the types that targets can choose.
std::string weighted_types(const QuantizedForms& own_forms) {
  std::vector<std::string> types;
  for (const QuantizedForms* forms : {&builtin_forms(), &own_forms}) {
    for (const QuantizedForm& form : *forms) {
      const bool known = std::find(types.begin(), types.end(), form.type) != types.end();
      if (form.kind == FormKind::kWeighted && !known) types.push_back(form.type);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < types.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < types.size() ? ", " : " and ") + types[i];
  }
  return text;
}

// Why a form cannot write codes of this many bits; "" if it can.
std::string too_wide(const QuantizedForm& form, const QuantizerConfig& output) {
  if (output.scheme.bits <= form.most_bits) return "";
  return form.type + " has codes of at most " + std::to_string(form.most_bits) +
         " bits, the group asks for " + std::to_string(output.scheme.bits);
}

class Decider {
 public:
  using Kind = Decision::Kind;

  // The config as for_profile() gives it.
  Decider(const QuantizeConfig& config, const QuantizedForms& own_forms)
      : own_forms_(own_forms),
        targets_(config),
        profile_(config.profile),
        bn_fold_(config.bn_fold) {
    for (std::size_t g = 0; g < config.groups.size(); ++g) {
      const QuantizeGroup& group = config.groups[g];
      if (group.targets.empty()) {
        throw InputError("quantize.groups." + std::to_string(g) +
                         ".targets: expected a type, a path or a pattern, got none");
      }
      validate(group.config, profile_);
      if (group.config.activations && !is_dynamic(group.config) && !joins_) {
        joins_ = group.config.activations;
      }
    }
  }

  Decisions run(Slot& root) {
    nodes_ = module_graph(root, own_forms_, targets_, profile_);
    flows_.resize(nodes_.size());
    taken_.resize(nodes_.size(), false);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!taken_[i]) decide(i);
    }
    targets_.finish(weighted_types(own_forms_));
    return {std::move(nodes_), std::move(decisions_), std::move(input_)};
  }

 private:
  void decide(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    if (node.form == nullptr) return decide_other(i);
    switch (node.form->kind) {
      case FormKind::kWeighted:
        return decide_weighted(node.form->is_linear ? with_followers(i, /*with_norm=*/true)
                                                    : alone(i));
      case FormKind::kPassesThrough:
        return decide_passive(alone(i));
      case FormKind::kComputes:
        return decide_computing(alone(i));
      case FormKind::kJoins:
        return decide_join(node.form->fuses_activation ? with_followers(i, /*with_norm=*/false)
                                                       : alone(i));
    }
  }

  Decision alone(std::size_t i) const {
    Decision d;
    d.node = i;
    d.in = input_flow(i);
    return d;
  }

  // A node with the norm and the activation after it, if nobody else reads what they read.
  Decision with_followers(std::size_t i, bool with_norm) const {
    Decision d = alone(i);
    std::size_t last = i;
    const auto index = [&](const ModuleNode* node) {
      return last = static_cast<std::size_t>(node - nodes_.data());
    };
    const ModuleNode* next = sole_reader(nodes_, last);
    if (with_norm && next != nullptr && holds<BatchNorm>(*next->slot)) {
      d.norm = index(next);
      next = sole_reader(nodes_, last);
    }
    if (next != nullptr && next->form != nullptr &&
        next->form->activation != kernels::Activation::kNone) {
      d.activation = index(next);
      d.activated = next->form->activation;
    }
    return d;
  }

  static std::size_t last_of(const Decision& d) {
    return d.activation.value_or(d.norm.value_or(d.node));
  }

  void add(Decision decision, const Flow& output) {
    for (const std::size_t i : {decision.node, last_of(decision)}) flows_[i] = output;
    for (const auto& follower : {decision.norm, decision.activation}) {
      if (follower) taken_[*follower] = true;
    }
    decisions_.push_back(std::move(decision));
  }

  void keep_in_float(Decision decision, Kind kind, const std::string& reason) {
    if (is_fixed_point(profile_)) refuse(decision.node, reason);
    decision.kind = kind;
    decision.reason = reason;
    const Flow flow{Flow::Kind::kFloat, nodes_[decision.node].path, {}};
    add(std::move(decision), flow);
  }

  // Profiles of fixed point have no floats.
  [[noreturn]] void refuse(std::size_t i, const std::string& reason) const {
    const ModuleNode& node = nodes_[i];
    throw InputError((node.path.empty() ? "the model" : node.path) + ": the profile " +
                     word_of(profile_) + " has no such " + (*node.slot)->type_name() + ": " +
                     reason);
  }

  Flow input_flow(std::size_t i, std::size_t operand = 0) const {
    if (nodes_[i].inputs.empty()) return {Flow::Kind::kUnknown, nodes_[i].path, {}};
    const std::size_t input = nodes_[i].inputs.at(operand);
    if (input == ModuleNode::kModelInput) return {};
    if (input != ModuleNode::kUnknown) return flows_[input];
    return {Flow::Kind::kUnknown, nodes_[i].path, {}};
  }

  void decide_weighted(Decision d) {
    const ModuleNode& node = nodes_[d.node];
    std::string reason;
    const QConfig* target =
        targets_.config_for(node.path, (*node.slot)->type_name(), node.container, reason);
    if (target != nullptr && node.form->refusal) {
      reason = node.form->refusal(**node.slot, target->activations.value_or(QuantizerConfig{}));
      if (!reason.empty()) target = nullptr;
    }
    if (target != nullptr && node.form->weights_alone) {
      reason = why_not_weights_alone(*target);
      if (!reason.empty()) target = nullptr;
    }
    if (target == nullptr) return keep_in_float(std::move(d), Kind::kWeightedFloat, reason);
    d.kind = Kind::kWeighted;
    d.config = *target;
    if (node.form->weights_alone) {
      d.config.activations.reset();
      d.note = "codes of its rows";
    }
    if (node.form->weights && d.config.weights) node.form->weights(*d.config.weights);
    d.place = targets_.place_of_target() + ": " + node.path;
    if (!node.form->is_linear && !node.form->weights_alone) require_alone(d.node);
    require_widths(d);
    if (d.norm && bn_fold_ == BatchNormFold::kNone && is_fixed_point(profile_)) {
      refuse(*d.norm, std::string("quantize.bn_fold: ") + word_of(bn_fold_) +
                          " leaves it in float; expected frozen, batch_corrected or "
                          "one_convolution");
    }
    if (node.form->is_linear) d.note = only_floats_read(last_of(d));
    if (is_dynamic(d.config)) d.note = "dynamic: the next layer quantizes it";
    if (!node.form->weights_alone) decide_input(d, *target);
    const bool quantized = d.config.activations && d.note.empty();
    const Flow output = quantized ? Flow{Flow::Kind::kQuantized, node.path, d.config.activations}
                                  : Flow{Flow::Kind::kFloat, node.path, {}};
    add(std::move(d), output);
  }

  // Why a layer whose weights alone would have codes stays in float; "" where it does not.
  std::string why_not_weights_alone(const QConfig& target) const {
    if (!target.weights) return "its group has no weights";
    const bool tied = std::any_of(nodes_.begin(), nodes_.end(), [](const ModuleNode& node) {
      return holds<EmbeddingHead>(*node.slot);
    });
    return tied ? "the head has its table, too" : "";
  }

  // The tensor that the layer reads: quantized at its producer, else at this reader. Dynamic layers
  // quantize what arrives in float.
  void decide_input(Decision& d, const QConfig& target) {
    if (target.weights && target.activations && !is_dynamic(target)) {
      if (d.in.kind == Flow::Kind::kModelInput && !input_) input_ = target.activations;
      d.quantizes_input = d.in.kind == Flow::Kind::kFloat || d.in.kind == Flow::Kind::kUnknown;
    }
    d.multiplied = d.in.kind == Flow::Kind::kQuantized              ? d.in.config
                   : d.in.kind == Flow::Kind::kModelInput && input_ ? input_
                                                                    : target.activations;
    const bool groups =
        target.weights && target.weights->scheme.granularity == kernels::Granularity::kGroup;
    // Groups are multiplied in float where the layer's group has no activations.
    if (!target.weights || (groups && !target.activations)) d.multiplied.reset();
  }

  // Such a module in two places would become two, each with parameters and an optimizer's state of
  // its own; linear maps share theirs.
  void require_alone(std::size_t i) const {
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if (k == i || nodes_[k].slot->module() != nodes_[i].slot->module()) continue;
      throw InputError(nodes_[std::min(i, k)].path + " and " + nodes_[std::max(i, k)].path +
                       " are the same layer: expected a layer for each place (quantize.ignore "
                       "leaves it in float)");
    }
  }

  // A layer of a user's own form that supports only 8-bit codes gets no wider ones.
  void require_widths(const Decision& d) const {
    const QuantizedForm& form = *nodes_[d.node].form;
    std::string reason = reads_too_wide(form, d.in);
    if (reason.empty() && d.config.activations) reason = too_wide(form, *d.config.activations);
    if (!reason.empty()) throw InputError(d.place + ": " + reason);
  }

  // TensorRT quantizes what weighted layers read, not what they write (docs/exports.md). Why no
  // reader of the output wants codes; "" where one does.
  std::string only_floats_read(std::size_t i) const {
    const ModuleNode& node = nodes_[i];
    std::string why;
    if (profile_ != Profile::kTensorrt) return why;
    for (const ModuleNode::Reader& reader : node.readers) {
      const QuantizedForm* form = nodes_[reader.node].form;
      std::string found;
      if (form != nullptr && form->kind == FormKind::kJoins) {
        if (reader.operand < form->float_operands) found = form->reader + " (profile tensorrt)";
      } else if ((form != nullptr && form->kind == FormKind::kPassesThrough) ||
                 holds<Identity>(*nodes_[reader.node].slot)) {
        found = only_floats_read(reader.node);
      } else if (holds<OutputParts>(*nodes_[reader.node].slot)) {
        found = kModelOutput;
      }
      if (found.empty()) return "";
      if (why.empty()) why = found;
    }
    if (node.is_output && why.empty()) why = kModelOutput;
    return why;
  }

  std::string small_values_count(std::size_t i) const {
    const std::string reader = reads_small_values(nodes_, i);
    return reader.empty() ? "" : "read by " + reader + ", which needs its small values";
  }

  // Why a form cannot read codes of this many bits; "" if it can.
  std::string reads_too_wide(const QuantizedForm& form, const Flow& in) const {
    const std::optional<QuantizerConfig>& codes = in.kind != Flow::Kind::kModelInput ? in.config
                                                  : input_                           ? input_
                                                                                     : joins_;
    if (!codes || codes->scheme.bits <= form.most_bits) return "";
    return form.type + " has codes of at most " + std::to_string(form.most_bits) +
           " bits, its input has " + std::to_string(codes->scheme.bits);
  }

  void decide_passive(Decision d) {
    const std::string reason = reads_too_wide(*nodes_[d.node].form, d.in);
    if (!reason.empty()) return keep_in_float(std::move(d), Kind::kFloat, reason);
    if (is_fixed_point(profile_)) require_fixed_form(d);
    d.kind = Kind::kPassesThrough;
    const Flow in = d.in;
    add(std::move(d), in);
  }

  // What moves codes, or averages them, in fixed point.
  void require_fixed_form(const Decision& d) const {
    const ModuleNode& node = nodes_[d.node];
    std::string reason;
    if (node.form->refusal) reason = node.form->refusal(**node.slot, {});
    if (node.form->activation == kernels::Activation::kRelu6) {
      reason = "expected it alone after a layer or a sum, which computes it";
    }
    if (!reason.empty()) refuse(d.node, reason);
  }

  void decide_computing(Decision d) {
    const ModuleNode& node = nodes_[d.node];
    std::string reason;
    const auto in_float = [&](const std::string& why) {
      keep_in_float(std::move(d), Kind::kFloat, why);
    };
    const std::optional<QuantizerConfig> output = output_of(node);
    if (targets_.ignored(node.scope, reason)) return in_float(reason);
    if (!output) return in_float("no group has activations");
    if (d.in.kind == Flow::Kind::kFloat) return in_float("its input is in float");
    reason = small_values_count(d.node);
    if (reason.empty()) reason = reads_too_wide(*node.form, d.in);
    if (reason.empty()) reason = too_wide(*node.form, *output);
    if (reason.empty() && node.form->refusal) reason = node.form->refusal(**node.slot, *output);
    if (!reason.empty()) return in_float(reason);
    const ModuleNode* next = node.form->continues ? sole_reader(nodes_, d.node) : nullptr;
    if (next != nullptr && next->form == node.form && !targets_.ignored(next->scope, reason)) {
      d.kind = Kind::kContinues;
      d.reason = next->path;
      const Flow in = d.in;
      return add(std::move(d), in);
    }
    read_model_input(d.in);
    own_output(std::move(d), *output);
  }

  void decide_join(Decision d) {
    const ModuleNode& node = nodes_[d.node];
    std::vector<Flow> flows;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) flows.push_back(input_flow(d.node, k));
    std::string reason;
    const auto in_float = [&](const std::string& why) {
      keep_in_float(std::move(d), Kind::kFloat, why);
    };
    const std::optional<QuantizerConfig> output = output_of(node);
    if (targets_.ignored(node.scope, reason)) return in_float(reason);
    if (!output) return in_float("no group has activations");
    const bool float_operand = std::any_of(flows.begin(), flows.end(), [](const Flow& flow) {
      return flow.kind == Flow::Kind::kFloat;
    });
    if (float_operand && profile_ != Profile::kTensorrt) return in_float("a branch is in float");
    reason = small_values_count(last_of(d));
    if (reason.empty()) reason = too_wide(*node.form, *output);
    for (const Flow& flow : flows) {
      if (reason.empty()) reason = reads_too_wide(*node.form, flow);
    }
    if (!reason.empty()) return in_float(reason);
    for (const Flow& flow : flows) read_model_input(flow);
    reason = only_floats_read(last_of(d));
    if (!reason.empty()) return in_float(reason);
    own_output(std::move(d), *output);
  }

  void own_output(Decision d, const QuantizerConfig& output) {
    const ModuleNode& node = nodes_[d.node];
    if (!(*node.slot)->named_parameters().empty()) require_alone(d.node);
    d.kind = Kind::kOwnOutput;
    d.output = output;
    if (node.form->output) node.form->output(d.output);
    d.note = node.form->note;
    if (d.activation) d.note += " after " + nodes_[*d.activation].path;
    const Flow flow{Flow::Kind::kQuantized, node.path, d.output};
    add(std::move(d), flow);
  }

  // What a module without weights is given, if nothing keeps it in float.
  std::optional<QuantizerConfig> output_of(const ModuleNode& node) {
    const QuantizerConfig* named = targets_.activations_named(node.path);
    return named == nullptr ? joins_ : *named;
  }

  // A module without a quantized form.
  void decide_other(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    Decision d = alone(i);
    if (holds<Identity>(*node.slot)) {
      const Flow in = d.in;
      return add(std::move(d), in);
    }
    if (is_fixed_point(profile_) && holds<OutputParts>(*node.slot)) {
      throw InputError(std::string("the model has several outputs: the profile ") +
                       word_of(profile_) + " has models of one");
    }
    if ((*node.slot)->children().empty()) {
      const std::string type = (*node.slot)->type_name();
      return keep_in_float(std::move(d), Kind::kNoForm,
                           type + " has no quantized form" + other_form(type));
    }
    if (is_fixed_point(profile_)) refuse(i, "what it computes between its children is unknown");
    d.kind = Kind::kContainer;
    add(std::move(d), {Flow::Kind::kUnknown, node.path, {}});
  }

  // What computes the same and has a form in fixed point.
  std::string other_form(const std::string& type) const {
    if (!is_fixed_point(profile_)) return "";
    for (const char* family : {"Conv", "MaxPool", "AvgPool"}) {
      if (type != std::string(family) + "1d") continue;
      return std::string(" here; ") + family +
             "2d with a kernel of [k, 1] computes the same of samples [length, 1, channels]";
    }
    const bool norm = type == "BatchNorm1d" || type == "BatchNorm2d";
    return norm ? " but as a part of the layer before it, if nothing else reads that layer" : "";
  }

  void read_model_input(const Flow& flow) {
    if (flow.kind == Flow::Kind::kModelInput && !input_) input_ = joins_;
  }

  const QuantizedForms& own_forms_;
  TargetMatcher targets_;
  Profile profile_;
  BatchNormFold bn_fold_;
  // The quantizer of sums, joins and averages that no target names: the first group's activations.
  std::optional<QuantizerConfig> joins_;
  std::optional<QuantizerConfig> input_;
  std::vector<ModuleNode> nodes_;
  std::vector<Flow> flows_;  // of the nodes' outputs
  std::vector<bool> taken_;  // along by an earlier node
  std::vector<Decision> decisions_;
};

}  // namespace

Decisions decide(Slot& root, const QuantizeConfig& config, const QuantizedForms& own_forms) {
  return Decider(for_profile(config), own_forms).run(root);
}

}  // namespace steelyard::qat
