#include "steelyard/qat/prepare/prepare.h"

#include <algorithm>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/layers/form_table.h"
#include "steelyard/qat/model/qat_model.h"
#include "steelyard/qat/prepare/layer_limits.h"
#include "steelyard/qat/prepare/layer_rows.h"
#include "steelyard/qat/prepare/module_graph.h"

namespace steelyard::qat {
namespace {

constexpr const char* kInputName = "(input)";

// How a tensor is represented, and by which quantizer.
struct Flow {
  enum class Kind { kModelInput, kQuantized, kFloat, kUnknown };
  Kind kind = Kind::kModelInput;
  std::string source = kInputName;             // the quantizer's owner
  std::optional<QuantizerConfig> config = {};  // of a quantized one
};

template <typename T>
std::shared_ptr<T> as(const Slot& slot) {
  return std::dynamic_pointer_cast<T>(slot.module());
}

// "Linear, Conv2d and Pointwise": the types that targets can choose.
std::string weighted_types(const QuantizedForms& own_forms) {
  std::vector<std::string> types;
  for (const QuantizedForms* forms : {&builtin_forms(), &own_forms}) {
    for (const QuantizedForm& form : *forms) {
      if (form.kind == FormKind::kWeighted) types.push_back(form.type);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < types.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < types.size() ? ", " : " and ") + types[i];
  }
  return text;
}

void require_float(Module& model) {
  for (const NamedModule& entry : model.named_modules()) {
    const bool prepared = dynamic_cast<const QatModel*>(entry.module) != nullptr ||
                          dynamic_cast<const QuantizedLayer*>(entry.module) != nullptr;
    if (!prepared) continue;
    const std::string name = entry.name.empty() ? "it" : entry.name;
    throw std::invalid_argument(
        "[prepare] expected a model in float, got one that is prepared already: " + name +
        " is a " + entry.module->type_name());
  }
}

class Preparer {
 public:
  Preparer(const QuantizeConfig& config, const QuantizedForms& own_forms)
      : own_forms_(own_forms),
        targets_(config),
        bn_fold_(config.bn_fold),
        profile_(config.profile) {
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

  PreparedModel run(std::shared_ptr<Module> model) {
    auto root = std::make_shared<QatModel>(std::move(model));
    try {
      convert(*root);
    } catch (...) {
      put_back();
      throw;
    }
    root->watch_parameters();
    return {root, std::move(plan_)};
  }

 private:
  // A slot with what was in it.
  struct Replaced {
    Slot* slot;
    std::shared_ptr<Module> former;
  };

  void convert(QatModel& root) {
    nodes_ = module_graph(root.model(), own_forms_, targets_);
    for (const ModuleNode& node : nodes_) modules_.push_back(node.slot->module().get());
    flows_.resize(nodes_.size());
    placed_.resize(nodes_.size(), false);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!placed_[i]) place(i);
    }
    targets_.finish(weighted_types(own_forms_));
    if (input_) {
      root.quantize_input(*input_);
      plan_.rows.insert(plan_.rows.begin(),
                        plan_row(kInputName, "output", *input_, "the model's input"));
    }
  }

  void replace(Slot& slot, std::shared_ptr<Module> module) {
    replaced_.push_back({&slot, slot.module()});
    slot.replace(std::move(module));
  }

  void put_back() {
    for (; !replaced_.empty(); replaced_.pop_back()) {
      replaced_.back().slot->replace(std::move(replaced_.back().former));
    }
  }

  // A node with the following nodes that are fused into it.
  struct Chain {
    std::size_t head = 0;
    const ModuleNode* norm = nullptr;
    const ModuleNode* activation = nullptr;
    std::size_t last = 0;

    std::string norm_path() const { return norm != nullptr ? norm->path : ""; }
    std::string activation_path() const { return activation != nullptr ? activation->path : ""; }
    kernels::Activation fused() const {
      return activation != nullptr ? activation->form->activation : kernels::Activation::kNone;
    }
  };

  void place(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    if (node.form == nullptr) return place_other(i);
    switch (node.form->kind) {
      case FormKind::kWeighted:
        return place_weighted(node.form->is_linear ? chain_of(i, /*with_norm=*/true)
                                                   : Chain{.head = i, .last = i});
      case FormKind::kPassesThrough:
        return place_passive(i);
      case FormKind::kComputes:
        return place_computing(i);
      case FormKind::kJoins:
        return place_join(node.form->fuses_activation ? chain_of(i, /*with_norm=*/false)
                                                      : Chain{.head = i, .last = i});
    }
  }

  Chain chain_of(std::size_t i, bool with_norm) const {
    Chain chain{.head = i, .last = i};
    const auto follower = [&] { return sole_reader(nodes_, chain.last); };
    const auto take = [&](const ModuleNode*& as, const ModuleNode* node) {
      as = node;
      chain.last = static_cast<std::size_t>(node - nodes_.data());
    };
    if (const ModuleNode* next = follower(); with_norm && next && as<BatchNorm>(*next->slot)) {
      take(chain.norm, next);
    }
    if (const ModuleNode* next = follower();
        next && next->form && next->form->activation != kernels::Activation::kNone) {
      take(chain.activation, next);
    }
    return chain;
  }

  void finish(const Chain& chain, const Flow& flow) {
    for (std::size_t i : {chain.head, chain.last}) flows_[i] = flow;
    for (const ModuleNode* node : {chain.norm, chain.activation}) {
      if (node != nullptr) placed_[static_cast<std::size_t>(node - nodes_.data())] = true;
    }
  }

  Flow input_flow(std::size_t i, std::size_t operand = 0) const {
    const std::size_t input = nodes_[i].inputs.at(operand);
    if (input == ModuleNode::kModelInput) return {};
    if (input != ModuleNode::kUnknown) return flows_[input];
    return {Flow::Kind::kUnknown, nodes_[i].path, {}};
  }

  void place_weighted(const Chain& chain) {
    const ModuleNode& node = nodes_[chain.head];
    const LayerRows rows{node.path, chain.norm_path(), chain.activation_path()};
    const Flow in = input_flow(chain.head);
    std::string reason;
    const QConfig* target =
        targets_.config_for(node.path, (*node.slot)->type_name(), node.container, reason);
    if (target != nullptr && node.form->refusal) {
      reason = node.form->refusal(**node.slot, target->activations.value_or(QuantizerConfig{}));
      if (!reason.empty()) target = nullptr;
    }
    if (target == nullptr) {
      add_rows(rows.in_float(reason));
      return finish(chain, {Flow::Kind::kFloat, node.path, {}});
    }
    require_alone(chain.head);
    require_widths(node, *target, in);
    std::string float_output = node.form->is_linear ? only_floats_read(chain.last) : "";
    const auto layer = swap_layer(chain, *target, !float_output.empty());
    if (is_dynamic(*target)) {
      require_rows(*layer, *target, node);
      float_output = "dynamic: the next layer quantizes it";
    }
    wire_input(*layer, *target, node.path, in);
    require_sums_fit(*target, in, layer->weight_by_output_channel(), node.path);
    add_rows(rows.quantized(*target, layer->bias().defined(),
                            is_dynamic(*target) || layer->has_groups(), bn_fold_,
                            in.kind == Flow::Kind::kQuantized, float_output));
    add_more_rows(node, *target);
    if (target->activations && float_output.empty()) {
      finish(chain, {Flow::Kind::kQuantized, node.path, target->activations});
    } else {
      finish(chain, {Flow::Kind::kFloat, node.path, {}});
    }
  }

  void add_more_rows(const ModuleNode& node, const QConfig& target) {
    const auto add = [&](const std::vector<std::string>& tensors, const auto& config) {
      if (!config) return;
      for (const std::string& tensor : tensors) {
        plan_.rows.push_back(plan_row(node.path, tensor, *config, ""));
      }
    };
    add(node.form->more_weights, target.weights);
    add(node.form->more_activations, target.activations);
  }

  std::shared_ptr<QuantizedLayer> swap_layer(const Chain& chain, const QConfig& target,
                                             bool float_output) {
    const ModuleNode& node = nodes_[chain.head];
    const Module& module = **node.slot;
    FormRequest request;
    request.config = target;
    const auto by_output_channel = [&](const Tensor& weight) {
      return node.form->by_output_channel ? node.form->by_output_channel(module, weight) : weight;
    };
    request.weight = own_parameter(module, "weight");
    request.bias = own_parameter(module, "bias");
    request.activation = chain.fused();
    if (float_output) request.config.activations.reset();
    require_groups_fit(request.config, by_output_channel(request.weight),
                       targets_.place_of_target() + ": " + node.path);
    const auto norm = chain.norm != nullptr ? as<BatchNorm>(*chain.norm->slot) : nullptr;
    const bool drops_norm = norm != nullptr && bn_fold_ == BatchNormFold::kFrozen;
    if (drops_norm) {
      const FoldedWeights folded =
          fold_batch_norm(by_output_channel(request.weight), request.bias, *norm);
      request.weight = by_output_channel(folded.weight);
      request.bias = folded.bias;
    }
    const auto layer = std::dynamic_pointer_cast<QuantizedLayer>(node.form->make(module, request));
    if (layer == nullptr) {
      throw std::invalid_argument("[prepare] the quantized form of " + node.form->type +
                                  " is expected to be a QuantizedLayer");
    }
    replace(*node.slot, layer);
    if (drops_norm) {
      replace(*chain.norm->slot, std::make_shared<Identity>());
    } else if (norm != nullptr) {
      // The norm stays in its slot; the layer before it computes it.
      const auto folded = std::make_shared<FoldedNorm>(norm, bn_fold_);
      replace(*chain.norm->slot, folded);
      layer->take_norm(folded);
    }
    if (chain.activation != nullptr) {
      replace(*chain.activation->slot, std::make_shared<Identity>());
    }
    return layer;
  }

  void require_sums_fit(const QConfig& config, const Flow& in, const Tensor& weight,
                        const std::string& path) const {
    // A dynamic layer quantizes a model's input that arrives in float.
    const auto& inputs = in.kind == Flow::Kind::kQuantized              ? in.config
                         : in.kind == Flow::Kind::kModelInput && input_ ? input_
                                                                        : config.activations;
    if (!config.weights || !inputs) return;
    const bool groups = config.weights->scheme.granularity == kernels::Granularity::kGroup;
    if (groups && !config.activations) return;  // multiplied in float
    qat::require_sums_fit(inputs->scheme, config.weights->scheme, weight,
                          targets_.place_of_target() + ": " + path);
  }

  // A layer in two places would become two, each with weights and an optimizer's state of its own.
  void require_alone(std::size_t i) const {
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if (k == i || modules_[k] != modules_[i]) continue;
      throw InputError(nodes_[std::min(i, k)].path + " and " + nodes_[std::max(i, k)].path +
                       " are the same layer: expected a layer for each place (quantize.ignore "
                       "leaves it in float)");
    }
  }

  // A layer of a user's own form that supports only 8-bit codes gets no wider ones.
  void require_widths(const ModuleNode& node, const QConfig& target, const Flow& in) const {
    std::string reason = too_wide(*node.form, in);
    if (reason.empty() && target.activations) reason = too_wide(*node.form, *target.activations);
    if (!reason.empty())
      throw InputError(targets_.place_of_target() + ": " + node.path + ": " + reason);
  }

  static bool is_dynamic(const QConfig& config) {
    return config.activations && config.activations->scheme.dynamic;
  }

  // Checks that the rows, groups or blocks of dynamic scales suit integer sums.
  void require_rows(QuantizedLayer& layer, const QConfig& config, const ModuleNode& node) const {
    const std::string place = targets_.place_of_target() + ": " + node.path + ": ";
    const observers::QScheme& inputs = config.activations->scheme;
    const observers::QScheme& weights = config.weights->scheme;
    if (inputs.granularity == kernels::Granularity::kToken) return;
    const bool blocks = inputs.granularity == kernels::Granularity::kBlock;
    const std::string what = blocks ? "blocks" : "groups";
    if (!layer.multiplies_rows()) {
      throw InputError(place + "expected a Linear for dynamic activations in " + what + ", got " +
                       node.form->type + ", which takes the strategy token");
    }
    const std::int64_t features = layer.weight().value().dim(1);
    const std::int64_t size = blocks ? inputs.block[1] : inputs.group_size;
    if (features <= size) return;
    if (features % size != 0) {
      throw InputError(place + what + " of " + std::to_string(size) + " do not divide the " +
                       std::to_string(features) + " features of its input");
    }
    if (layer.has_groups() && weights.group_size != size) {
      throw InputError(place +
                       (blocks ? "expected blocks of as many columns as a group has weights, got "
                               : "expected the same group_size for weights and activations, got ") +
                       std::to_string(blocks ? size : weights.group_size) + " and " +
                       std::to_string(blocks ? weights.group_size : size));
    }
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
                 as<Identity>(*nodes_[reader.node].slot)) {
        found = only_floats_read(reader.node);
      }
      if (found.empty()) return "";
      if (why.empty()) why = found;
    }
    if (node.is_output && why.empty()) why = "the model's output (profile tensorrt)";
    return why;
  }

  std::string small_values_count(std::size_t i) const {
    const std::string reader = reads_small_values(nodes_, i);
    return reader.empty() ? "" : "read by " + reader + ", which needs its small values";
  }

  // The tensor the layer reads: quantized at its producer, else at this reader.
  void wire_input(QuantizedLayer& layer, const QConfig& config, const std::string& path,
                  const Flow& in) {
    if (!config.weights || !config.activations) return;
    layer.multiply_groups_as_integers();
    if (is_dynamic(config)) {
      const bool arrives = in.kind == Flow::Kind::kQuantized;
      plan_.rows.push_back(
          plan_row(path, "input",
                   arrives ? "as " + in.source : observers::to_string(config.activations->scheme),
                   "-", arrives ? "" : "if the input arrives in float"));
      return;
    }
    switch (in.kind) {
      case Flow::Kind::kQuantized:
        return;
      case Flow::Kind::kModelInput:
        if (!input_) input_ = config.activations;
        return;
      case Flow::Kind::kFloat:
      case Flow::Kind::kUnknown:
        layer.add_input_quantizer(*config.activations);
        plan_.rows.push_back(plan_row(path, "input", *config.activations,
                                      in.kind == Flow::Kind::kFloat
                                          ? "its producer is in float"
                                          : "if the input arrives in float"));
    }
  }

  // Why a form cannot read codes of this many bits; "" if it can.
  std::string too_wide(const QuantizedForm& form, const Flow& in) const {
    const std::optional<QuantizerConfig>& codes = in.kind != Flow::Kind::kModelInput ? in.config
                                                  : input_                           ? input_
                                                                                     : joins_;
    if (!codes || codes->scheme.bits <= form.most_bits) return "";
    return form.type + " has codes of at most " + std::to_string(form.most_bits) +
           " bits, its input has " + std::to_string(codes->scheme.bits);
  }
  static std::string too_wide(const QuantizedForm& form, const QuantizerConfig& output) {
    if (output.scheme.bits <= form.most_bits) return "";
    return form.type + " has codes of at most " + std::to_string(form.most_bits) +
           " bits, the group asks for " + std::to_string(output.scheme.bits);
  }

  void place_passive(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    const Flow in = input_flow(i);
    if (const std::string reason = too_wide(*node.form, in); !reason.empty()) {
      return keep_in_float({.head = i, .last = i}, reason);
    }
    replace(*node.slot, node.form->make(**node.slot, {}));
    const bool shared = in.kind == Flow::Kind::kQuantized || in.kind == Flow::Kind::kModelInput;
    plan_.rows.push_back(plan_row(node.path, "output", shared ? "as " + in.source : "float", "-",
                                  shared ? "" : "its input is in float"));
    flows_[i] = in;
  }

  void place_computing(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    const Chain alone{.head = i, .last = i};
    const Flow in = input_flow(i);
    std::string reason;
    if (targets_.ignored(node.scope, reason)) return keep_in_float(alone, reason);
    if (!joins_) return keep_in_float(alone, "no group has activations");
    if (in.kind == Flow::Kind::kFloat) return keep_in_float(alone, "its input is in float");
    reason = small_values_count(i);
    if (reason.empty()) reason = too_wide(*node.form, in);
    if (reason.empty()) reason = too_wide(*node.form, *joins_);
    if (reason.empty() && node.form->refusal) reason = node.form->refusal(**node.slot, *joins_);
    if (!reason.empty()) return keep_in_float(alone, reason);
    const ModuleNode* next = node.form->continues ? sole_reader(nodes_, i) : nullptr;
    if (next != nullptr && next->form == node.form && !targets_.ignored(next->scope, reason)) {
      plan_.rows.push_back(
          plan_row(node.path, "output", "float", "-", "quantized after " + next->path));
      flows_[i] = in;
      return;
    }
    read_model_input(in);
    swap_own_output(alone, kernels::Activation::kNone, node.form->note);
  }

  void place_join(const Chain& chain) {
    const ModuleNode& node = nodes_[chain.head];
    std::vector<Flow> flows;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) flows.push_back(input_flow(chain.head, k));
    std::string reason;
    if (targets_.ignored(node.scope, reason)) return keep_in_float(chain, reason);
    if (!joins_) return keep_in_float(chain, "no group has activations");
    const bool float_operand = std::any_of(flows.begin(), flows.end(), [](const Flow& flow) {
      return flow.kind == Flow::Kind::kFloat;
    });
    if (float_operand && profile_ != Profile::kTensorrt) {
      return keep_in_float(chain, "a branch is in float");
    }
    reason = small_values_count(chain.last);
    if (reason.empty()) reason = too_wide(*node.form, *joins_);
    for (const Flow& flow : flows) {
      if (reason.empty()) reason = too_wide(*node.form, flow);
    }
    if (!reason.empty()) return keep_in_float(chain, reason);
    for (const Flow& flow : flows) read_model_input(flow);
    reason = only_floats_read(chain.last);
    if (!reason.empty()) return keep_in_float(chain, reason);
    const kernels::Activation fused = chain.fused();
    std::string note = node.form->note;
    if (chain.activation != nullptr) {
      note += " after " + chain.activation->path;
      replace(*chain.activation->slot, std::make_shared<Identity>());
    }
    swap_own_output(chain, fused, note);
  }

  void swap_own_output(const Chain& chain, kernels::Activation activation,
                       const std::string& note) {
    const ModuleNode& node = nodes_[chain.head];
    if (!(*node.slot)->named_parameters().empty()) require_alone(chain.head);
    FormRequest request;
    request.output = *joins_;
    if (node.form->output) node.form->output(request.output);
    request.activation = activation;
    replace(*node.slot, node.form->make(**node.slot, request));
    plan_.rows.push_back(plan_row(node.path, "output", request.output, note));
    finish(chain, {Flow::Kind::kQuantized, node.path, request.output});
  }

  // Keeps a node in float, with the nodes that would have been fused into it.
  void keep_in_float(const Chain& chain, const std::string& reason) {
    const ModuleNode& node = nodes_[chain.head];
    plan_.rows.push_back(plan_row(node.path, "output", "float", "-", reason));
    finish(chain, {Flow::Kind::kFloat, node.path, {}});
  }

  // A module without a quantized form.
  void place_other(std::size_t i) {
    const ModuleNode& node = nodes_[i];
    Module& module = **node.slot;
    if (as<Identity>(*node.slot)) {
      flows_[i] = input_flow(i);
    } else if (module.children().empty()) {
      plan_.rows.push_back(
          plan_row(node.path, "-", "float", "-", module.type_name() + " has no quantized form"));
      flows_[i] = {Flow::Kind::kFloat, node.path, {}};
    } else {
      plan_.rows.push_back(
          plan_row(node.path, "-", "-", "-",
                   module.type_name() + ": its children are quantized one by one"));
      flows_[i] = {Flow::Kind::kUnknown, node.path, {}};
    }
  }

  void read_model_input(const Flow& flow) {
    if (flow.kind == Flow::Kind::kModelInput && !input_) input_ = joins_;
  }

  void add_rows(std::vector<PlanRow> rows) {
    for (PlanRow& row : rows) plan_.rows.push_back(std::move(row));
  }

  const QuantizedForms& own_forms_;
  TargetMatcher targets_;
  BatchNormFold bn_fold_;
  Profile profile_;
  // The quantizer of sums, joins and averages, which no target names: the first group's
  // activations.
  std::optional<QuantizerConfig> joins_;
  std::optional<QuantizerConfig> input_;
  std::vector<ModuleNode> nodes_;
  std::vector<const Module*> modules_;  // of the nodes, before any was swapped
  std::vector<Flow> flows_;             // of the nodes' outputs
  std::vector<bool> placed_;            // fused into an earlier node
  std::vector<Replaced> replaced_;      // in their order
  Plan plan_;
};

}  // namespace

PreparedModel prepare(std::shared_ptr<Module> model, const QuantizeConfig& config,
                      const QuantizedForms& own_forms) {
  if (!model) throw std::invalid_argument("[prepare] expected a model, got null");
  require_float(*model);
  return Preparer(config, own_forms).run(std::move(model));
}

}  // namespace steelyard::qat
