#include "steelyard/qat/prepare.h"

#include <algorithm>

#include "steelyard/framework/error.h"
#include "steelyard/kernels/integer.h"
#include "steelyard/kernels/integer_terms.h"
#include "steelyard/layers/activations.h"
#include "steelyard/layers/concat.h"
#include "steelyard/layers/dropout.h"
#include "steelyard/layers/flatten.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/pooling.h"
#include "steelyard/layers/residual.h"
#include "steelyard/layers/sequential.h"
#include "steelyard/qat/fold.h"
#include "steelyard/qat/pass_through.h"
#include "steelyard/qat/qat_concat.h"
#include "steelyard/qat/qat_conv2d.h"
#include "steelyard/qat/qat_linear.h"
#include "steelyard/qat/qat_pool.h"
#include "steelyard/qat/qat_residual.h"
#include "steelyard/qat/target_match.h"

namespace steelyard::qat {
namespace {

constexpr const char* kInputName = "(input)";

void require_groups_fit(const QConfig& config, const Tensor& weight, const std::string& path) {
  const std::int64_t outputs = weight.dim(0);
  if (!config.weights || outputs == 0) return;
  try {
    observers::scale_count(config.weights->scheme, outputs, weight.size() / outputs);
  } catch (const std::invalid_argument& error) {
    throw InputError(path + ": " + error.what());
  }
}

// The sums of products of a layer's weights and the codes it reads must fit int32.
void require_sums_fit(const observers::QScheme& inputs, const observers::QScheme& weights,
                      const Tensor& weight, const std::string& path) {
  const std::int64_t outputs = weight.dim(0);
  if (outputs == 0) return;
  const std::int64_t terms = weight.size() / outputs;
  const std::int64_t most = kernels::most_terms(
      kernels::largest_product(inputs.code_range(), weights.code_range(), weights.symmetric));
  if (terms <= most) return;
  throw InputError(path + ": expected at most " + std::to_string(most) +
                   " products per output, whose sum int32 holds (weights of " +
                   std::to_string(weights.bits) + " bits, inputs of " +
                   std::to_string(inputs.bits) + "), got " + std::to_string(terms));
}

// The whole model with the quantizer of its input; the wrapped model's names are unchanged.
class QatModel : public Module {
 public:
  explicit QatModel(std::shared_ptr<Module> model) : model_(register_child("", std::move(model))) {}

  void quantize_input(const QuantizerConfig& config) {
    input_ = &register_child("input_quantizer",
                             std::make_shared<FakeQuantize>(config, QuantizerRole::kActivation));
  }
  Slot& model() { return model_; }

  Variable forward(const Variable& x, ForwardContext& context) override {
    return model_(input_ != nullptr ? (*input_)(x, context) : x, context);
  }
  std::string type_name() const override { return "QatModel"; }

 private:
  Slot& model_;
  Slot* input_ = nullptr;
};

// How the tensor between two modules is represented, and by whose quantizer.
struct Flow {
  enum class Kind { kModelInput, kQuantized, kFloat, kUnknown };
  Kind kind = Kind::kModelInput;
  std::string source = kInputName;             // the quantizer's owner
  std::optional<QuantizerConfig> config = {};  // of a quantized one
};

template <typename T>
T* as(Module& module) {
  return dynamic_cast<T*>(&module);
}

std::string scheme_text(const QuantizerConfig& config) {
  return observers::to_string(config.scheme);
}

// What reads a module's output, as far as placement depends on it.
enum class Reader {
  kLayer,   // another layer, or a sum's shortcut: codes
  kSum,     // a residual sum, as its main branch
  kConcat,  // a concat, as one of its branches
  kNone     // it is the model's output
};

// A Linear or Conv2d with what follows it in its Sequential.
struct Chain {
  Slot* layer = nullptr;
  Slot* norm = nullptr;
  Slot* activation = nullptr;
  std::string norm_path{};
  std::string activation_path{};
};

kernels::Activation activation_of(Module& module) {
  if (as<ReLU>(module)) return kernels::Activation::kRelu;
  if (as<ReLU6>(module)) return kernels::Activation::kRelu6;
  return kernels::Activation::kNone;
}

class Preparer {
 public:
  explicit Preparer(const QuantizeConfig& config)
      : targets_(config), bn_fold_(config.bn_fold), profile_(config.profile) {
    for (const QuantizeGroup& group : config.groups) {
      validate(group.config, profile_);
      if (group.config.activations && !joins_) joins_ = group.config.activations;
    }
  }

  PreparedModel run(std::shared_ptr<Module> model) {
    auto root = std::make_shared<QatModel>(std::move(model));
    walk(root->model(), "", Flow{}, Reader::kNone);
    targets_.finish();
    if (input_) {
      root->quantize_input(*input_);
      plan_.rows.insert(plan_.rows.begin(), {kInputName, "output", scheme_text(*input_),
                                             input_->observer.type, "the model's input"});
    }
    return {root, std::move(plan_)};
  }

 private:
  Flow walk(Slot& slot, const std::string& path, const Flow& in, Reader reader) {
    Module& module = *slot;
    if (as<Linear>(module) || as<Conv2d>(module)) {
      return swap_layer({.layer = &slot}, path, in, reader);
    }
    targets_.enter(path, module.type_name());
    const Flow out = walk_entered(slot, path, in, reader);
    targets_.leave();
    return out;
  }

  Flow walk_entered(Slot& slot, const std::string& path, const Flow& in, Reader reader) {
    Module& module = *slot;
    if (auto* sequential = as<Sequential>(module)) {
      return walk_sequential(*sequential, path, in, reader);
    }
    if (as<Residual>(module)) return swap_residual(slot, path, in, reader);
    if (as<Concat>(module)) return swap_concat(slot, path, in, reader);
    if (as<Identity>(module)) return in;
    if (is_passive(module)) return swap_passive(slot, path, in);
    if (as<GlobalAvgPool>(module) || as<AvgPool2d>(module)) return swap_average(slot, path, in);
    return walk_unknown(module, path, in);
  }

  Flow walk_sequential(Sequential& sequential, const std::string& path, Flow flow, Reader reader) {
    const auto& children = sequential.children();
    // Only passive modules follow from here on: what reads the whole reads this child.
    std::size_t tail = children.size();
    while (tail > 0 && is_transparent(**children[tail - 1])) --tail;
    for (std::size_t i = 0; i < children.size();) {
      const std::string child_path = join_path(path, children[i]->name());
      Module& child = **children[i];
      if (!as<Linear>(child) && !as<Conv2d>(child)) {
        flow = walk(*children[i], child_path, flow, i + 1 >= tail ? reader : Reader::kLayer);
        ++i;
        continue;
      }
      Chain chain{.layer = children[i].get()};
      ++i;
      if (i < children.size() && as<BatchNorm2d>(**children[i])) {
        chain.norm = children[i].get();
        chain.norm_path = join_path(path, children[i]->name());
        ++i;
      }
      if (i < children.size() && activation_of(**children[i]) != kernels::Activation::kNone) {
        chain.activation = children[i].get();
        chain.activation_path = join_path(path, children[i]->name());
        ++i;
      }
      flow = swap_layer(chain, child_path, flow, i >= tail ? reader : Reader::kLayer);
    }
    return flow;
  }

  Flow swap_layer(const Chain& chain, const std::string& path, const Flow& in, Reader reader) {
    std::string reason;
    const QConfig* target = targets_.config_for(path, (*chain.layer)->type_name(), reason);
    if (target == nullptr) return keep_chain_in_float(chain, path, reason);
    note_chain(chain);
    QConfig own = *target;
    if (keeps_output_in_float(reader)) own.activations.reset();
    const QConfig* config = &own;

    FoldedWeights folded;
    const bool drops_norm = bn_fold_ == BatchNormFold::kFrozen;
    auto* norm = chain.norm != nullptr ? as<BatchNorm2d>(**chain.norm) : nullptr;
    const auto activation = chain.activation != nullptr ? activation_of(**chain.activation)
                                                        : kernels::Activation::kNone;
    const std::shared_ptr<Module> original = chain.layer->module();
    std::shared_ptr<QuantizedLayer> layer;
    const auto build = [&]<typename Quantized>(auto& source, std::shared_ptr<Quantized>) {
      const Tensor bias = source.bias().defined() ? source.bias().value() : Tensor();
      require_groups_fit(*config, source.weight().value(), path);
      if (norm != nullptr && drops_norm) {
        folded = fold_batch_norm(source.weight().value(), bias, *norm);
        return std::make_shared<Quantized>(source.options(), folded.weight, folded.bias, *config,
                                           activation);
      }
      return std::make_shared<Quantized>(source, *config, activation);
    };
    if (auto* linear = as<Linear>(*original)) {
      layer = build(*linear, std::shared_ptr<QatLinear>());
    } else {
      layer = build(*as<Conv2d>(*original), std::shared_ptr<QatConv2d>());
    }
    chain.layer->replace(layer);
    if (norm != nullptr && drops_norm) chain.norm->replace(std::make_shared<Identity>());
    if (norm != nullptr && !drops_norm) keep_norm(*chain.norm, *layer);
    if (chain.activation != nullptr) chain.activation->replace(std::make_shared<Identity>());
    wire_input(*layer, *target, path, in);
    require_sums_fit(*target, in, layer->weight().value(), path);
    return describe_layer(chain, *layer, *target, path, reader);
  }

  void require_sums_fit(const QConfig& config, const Flow& in, const Tensor& weight,
                        const std::string& path) const {
    const auto& inputs = in.kind == Flow::Kind::kQuantized    ? in.config
                         : in.kind == Flow::Kind::kModelInput ? input_
                                                              : config.activations;
    if (!config.weights || !inputs) return;
    if (config.weights->scheme.strategy == observers::Strategy::kGroup) return;  // in float
    qat::require_sums_fit(inputs->scheme, config.weights->scheme, weight,
                          targets_.place_of_target() + ": " + path);
  }

  // TensorRT quantizes what weighted layers read, not what they write (docs/exports.md).
  bool keeps_output_in_float(Reader reader) const {
    return profile_ == Profile::kTensorrt && reader != Reader::kLayer;
  }

  // The norm stays in its slot, and the layer before it does its work.
  void keep_norm(Slot& slot, QuantizedLayer& layer) {
    const auto norm = std::dynamic_pointer_cast<BatchNorm2d>(slot.module());
    const auto folded = std::make_shared<FoldedNorm>(norm, bn_fold_);
    slot.replace(folded);
    layer.take_norm(folded);
  }

  // The tensor the layer reads: quantized at its producer, else at this reader.
  void wire_input(QuantizedLayer& layer, const QConfig& config, const std::string& path,
                  const Flow& in) {
    if (!config.weights || !config.activations) return;
    switch (in.kind) {
      case Flow::Kind::kQuantized:
        return;
      case Flow::Kind::kModelInput:
        if (!input_) input_ = config.activations;
        return;
      case Flow::Kind::kFloat:
      case Flow::Kind::kUnknown:
        layer.add_input_quantizer(*config.activations);
        row(path, "input", scheme_text(*config.activations), config.activations->observer.type,
            in.kind == Flow::Kind::kFloat ? "its producer is in float"
                                          : "where the input arrives in float");
    }
  }

  Flow describe_layer(const Chain& chain, QuantizedLayer& layer, const QConfig& config,
                      const std::string& path, Reader reader) {
    const bool folds = chain.norm != nullptr && bn_fold_ != BatchNormFold::kNone;
    if (config.weights) {
      row(path, "weight", scheme_text(*config.weights), config.weights->observer.type,
          folds ? chain.norm_path + " folded in" + norm_note() : "");
    } else {
      row(path, "weight", "float", "-", "no weights in its group");
    }
    const bool integers = config.weights && config.activations;
    if (layer.bias().defined() || folds) {
      row(path, "bias", integers ? "int32, scale s_x * s_w" : "float", "-", "");
    }
    Flow out{Flow::Kind::kFloat, path, {}};
    std::string note = chain.activation != nullptr ? "after " + chain.activation_path : "";
    if (config.activations && keeps_output_in_float(reader)) {
      row(path, "output", "float", "-", float_output_note(reader));
    } else if (config.activations) {
      out.kind = Flow::Kind::kQuantized;
      out.config = config.activations;
      row(path, "output", scheme_text(*config.activations), config.activations->observer.type,
          note);
    } else {
      row(path, "output", "float", "-", "no activations in its group");
    }
    if (chain.norm != nullptr) {
      row(chain.norm_path, "-", folds ? "-" : "float", "-",
          folds ? "folded into " + path + norm_note() : "between product and output of " + path);
    }
    if (chain.activation != nullptr)
      row(chain.activation_path, "-", "-", "-", "fused into " + path);
    return out;
  }

  std::string norm_note() const {
    switch (bn_fold_) {
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

  static std::string float_output_note(Reader reader) {
    const char* who = reader == Reader::kSum      ? "a sum reads it"
                      : reader == Reader::kConcat ? "a concat reads it"
                                                  : "the model's output";
    return std::string(who) + " (profile tensorrt)";
  }

  Flow keep_chain_in_float(const Chain& chain, const std::string& path, const std::string& reason) {
    note_chain(chain);
    row(path, "-", "float", "-", reason);
    if (chain.norm != nullptr) row(chain.norm_path, "-", "float", "-", "follows " + path);
    if (chain.activation != nullptr)
      row(chain.activation_path, "-", "float", "-", "follows " + path);
    return {Flow::Kind::kFloat, path, {}};
  }

  void note_chain(const Chain& chain) {
    if (chain.norm != nullptr) note(*chain.norm, chain.norm_path);
    if (chain.activation != nullptr) note(*chain.activation, chain.activation_path);
  }

  // A module that its neighbour takes along.
  void note(const Slot& slot, const std::string& path) {
    targets_.enter(path, slot->type_name());
    targets_.leave();
  }

  static bool is_passive(Module& module) {
    return as<MaxPool2d>(module) || as<Flatten>(module) || as<Dropout>(module) ||
           activation_of(module) != kernels::Activation::kNone;
  }

  // What leaves its input's codes as they are.
  static bool is_transparent(Module& module) { return is_passive(module) || as<Identity>(module); }

  Flow swap_passive(Slot& slot, const std::string& path, const Flow& in) {
    Module& module = *slot;
    if (auto* pool = as<MaxPool2d>(module)) {
      slot.replace(std::make_shared<QatMaxPool2d>(pool->options()));
    } else if (as<Flatten>(module)) {
      slot.replace(std::make_shared<QatFlatten>());
    } else if (auto* dropout = as<Dropout>(module)) {
      slot.replace(std::make_shared<QatDropout>(dropout->p()));
    } else {
      slot.replace(std::make_shared<QatActivation>(activation_of(module)));
    }
    const bool shared = in.kind == Flow::Kind::kQuantized || in.kind == Flow::Kind::kModelInput;
    row(path, "output", shared ? "as " + in.source : "float", "-",
        shared ? "" : "its input is in float");
    return in;
  }

  Flow swap_average(Slot& slot, const std::string& path, const Flow& in) {
    auto* windows = as<AvgPool2d>(*slot);
    if (std::string reason; targets_.ignored(reason)) return keep_in_float(path, reason);
    if (!joins_ || in.kind == Flow::Kind::kFloat ||
        (windows != nullptr && !windows->options().count_include_pad)) {
      return keep_in_float(path, !joins_                         ? "no group has activations"
                                 : in.kind == Flow::Kind::kFloat ? "its input is in float"
                                                                 : "windows of unequal counts");
    }
    read_model_input(in);
    if (windows != nullptr) {
      slot.replace(std::make_shared<QatAvgPool2d>(windows->options().geometry, *joins_));
    } else {
      slot.replace(std::make_shared<QatGlobalAvgPool>(*joins_));
    }
    row(path, "output", scheme_text(*joins_), joins_->observer.type, "of the integer average");
    return {Flow::Kind::kQuantized, path, joins_};
  }

  Flow swap_residual(Slot& slot, const std::string& path, const Flow& in, Reader reader) {
    const std::shared_ptr<Module> residual = slot.module();  // keeps the slots below alive
    const auto& children = residual->children();
    Slot& main = *children[0];
    Slot& shortcut = *children[1];
    Slot& activation_slot = *children[2];
    const Flow a = walk(main, join_path(path, main.name()), in, Reader::kSum);
    const Flow b = walk(shortcut, join_path(path, shortcut.name()), in, Reader::kLayer);
    const std::string activation_path = join_path(path, activation_slot.name());
    note(activation_slot, activation_path);
    const auto activation = activation_of(*activation_slot);
    const bool known_activation =
        activation != kernels::Activation::kNone || as<Identity>(*activation_slot);
    const bool float_sum = profile_ == Profile::kTensorrt;
    const bool quantizable =
        float_sum || (a.kind != Flow::Kind::kFloat && b.kind != Flow::Kind::kFloat);
    if (std::string reason; targets_.ignored(reason)) return keep_in_float(path, reason);
    if (!joins_ || !known_activation || !quantizable) {
      return keep_in_float(path, !joins_       ? "no group has activations"
                                 : quantizable ? "its activation has no quantized form"
                                               : "a branch is in float");
    }
    read_model_input(a);
    read_model_input(b);
    if (keeps_output_in_float(reader)) return keep_in_float(path, float_output_note(reader));
    slot.replace(
        std::make_shared<QatResidual>(main.module(), shortcut.module(), activation, *joins_));
    const bool fused = activation != kernels::Activation::kNone;
    row(path, "output", scheme_text(*joins_), joins_->observer.type,
        std::string("residual sum") + (fused ? " after " + activation_path : ""));
    return {Flow::Kind::kQuantized, path, joins_};
  }

  Flow swap_concat(Slot& slot, const std::string& path, const Flow& in, Reader reader) {
    const std::shared_ptr<Module> concat = slot.module();  // keeps the slots below alive
    std::vector<Flow> flows;
    for (const auto& branch : concat->children()) {
      flows.push_back(walk(*branch, join_path(path, branch->name()), in, Reader::kConcat));
    }
    const bool joins_floats = profile_ == Profile::kTensorrt;
    const bool quantizable =
        joins_floats || std::none_of(flows.begin(), flows.end(),
                                     [](auto& flow) { return flow.kind == Flow::Kind::kFloat; });
    if (std::string reason; targets_.ignored(reason)) return keep_in_float(path, reason);
    if (!joins_ || !quantizable) {
      return keep_in_float(path, joins_ ? "a branch is in float" : "no group has activations");
    }
    for (const Flow& flow : flows) read_model_input(flow);
    if (keeps_output_in_float(reader)) return keep_in_float(path, float_output_note(reader));
    slot.replace(std::make_shared<QatConcat>(*concat, *joins_));
    row(path, "output", scheme_text(*joins_), joins_->observer.type, "of the joined branches");
    return {Flow::Kind::kQuantized, path, joins_};
  }

  // Containers and layers the walk does not know: children are swapped one by one.
  Flow walk_unknown(Module& module, const std::string& path, const Flow&) {
    if (module.children().empty()) {
      row(path, "-", "float", "-", module.type_name() + " has no quantized form");
      return {Flow::Kind::kFloat, path, {}};
    }
    row(path, "-", "-", "-", module.type_name() + ": children swapped one by one");
    for (const auto& child : module.children()) {
      walk(*child, join_path(path, child->name()), {Flow::Kind::kUnknown, path, {}},
           Reader::kLayer);
    }
    return {Flow::Kind::kUnknown, path, {}};
  }

  // A sum or an average.
  Flow keep_in_float(const std::string& path, const std::string& reason) {
    row(path, "output", "float", "-", reason);
    return {Flow::Kind::kFloat, path, {}};
  }

  void read_model_input(const Flow& flow) {
    if (flow.kind == Flow::Kind::kModelInput && !input_) input_ = joins_;
  }

  void row(const std::string& module, const std::string& tensor, const std::string& quantized,
           const std::string& observer, const std::string& note) {
    plan_.rows.push_back({module.empty() ? "(model)" : module, tensor, quantized, observer, note});
  }

  TargetMatcher targets_;
  BatchNormFold bn_fold_;
  Profile profile_;
  // The quantizer of sums, joins and averages, which no target names: the first group's
  // activations.
  std::optional<QuantizerConfig> joins_;
  std::optional<QuantizerConfig> input_;
  Plan plan_;
};

}  // namespace

PreparedModel prepare(std::shared_ptr<Module> model, const QuantizeConfig& config) {
  if (!model) throw std::invalid_argument("[prepare] expected a model, got null");
  return Preparer(config).run(std::move(model));
}

std::vector<NamedQuantizer> named_quantizers(Module& model) {
  std::vector<NamedQuantizer> found;
  for (const NamedModule& entry : model.named_modules()) {
    if (auto* quantizer = as<FakeQuantize>(*entry.module)) found.push_back({entry.name, quantizer});
  }
  return found;
}

}  // namespace steelyard::qat
