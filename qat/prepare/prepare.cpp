#include "steelyard/qat/prepare/prepare.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "steelyard/framework/autograd/fault_check.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/layers/identity.h"
#include "steelyard/layers/norms/batch_norm.h"
#include "steelyard/qat/forms/fold.h"
#include "steelyard/qat/forms/quantized_layer.h"
#include "steelyard/qat/model/qat_model.h"
#include "steelyard/qat/prepare/decisions.h"
#include "steelyard/qat/prepare/layer_limits.h"
#include "steelyard/qat/prepare/plan_rows.h"
#include "steelyard/qat/quantizers/words.h"

namespace steelyard::qat {
namespace {

void require_float32(Module& model) {
  for (const NamedModule& entry : model.named_modules()) {
    const bool prepared = dynamic_cast<const QatModel*>(entry.module) != nullptr ||
                          dynamic_cast<const QuantizedLayer*>(entry.module) != nullptr;
    if (!prepared) continue;
    const std::string name = entry.name.empty() ? "it" : entry.name;
    throw std::invalid_argument(
        "[prepare] expected a model in float, got one that is prepared already: " + name +
        " is a " + entry.module->type_name());
  }
  for (const NamedParameter& p : model.named_parameters()) {
    if (p.variable.dtype() == DType::kF32) continue;
    throw std::invalid_argument("[prepare] expected parameters in f32, got " +
                                std::string(dtype_name(p.variable.dtype())) + " of '" + p.name +
                                "'");
  }
}

// Throws where the rows, groups or blocks of dynamic scales do not suit integer sums.
void require_rows(QuantizedLayer& layer, const Decision& d, const std::string& type) {
  const observers::QScheme& inputs = d.config.activations->scheme;
  const observers::QScheme& weights = d.config.weights->scheme;
  if (inputs.granularity == kernels::Granularity::kToken) return;
  const bool blocks = inputs.granularity == kernels::Granularity::kBlock;
  const std::string what = blocks ? "blocks" : "groups";
  if (!layer.multiplies_rows()) {
    throw InputError(d.place + ": expected a Linear for dynamic activations in " + what + ", got " +
                     type + ", which takes the strategy token");
  }
  const std::int64_t features = layer.weight().value().dim(1);
  const std::int64_t size = blocks ? inputs.block[1] : inputs.group_size;
  if (features <= size) return;
  if (features % size != 0) {
    throw InputError(d.place + ": " + what + " of " + std::to_string(size) + " do not divide the " +
                     std::to_string(features) + " features of its input");
  }
  if (layer.has_groups() && weights.group_size != size) {
    throw InputError(d.place + ": " +
                     (blocks ? "expected blocks of as many columns as a group has weights, got "
                             : "expected the same group_size for weights and activations, got ") +
                     std::to_string(blocks ? size : weights.group_size) + " and " +
                     std::to_string(blocks ? weights.group_size : size));
  }
}

// Makes the modules that were decided on and puts them into their slots.
class Applier {
 public:
  Applier(const Decisions& all, BatchNormFold bn_fold) : all_(all), bn_fold_(bn_fold) {
    for (const ModuleNode& node : all_.nodes) ++places_[node.slot->module().get()];
  }

  // The plan. After an exception all slots hold what they held before.
  Plan run() {
    Plan plan;
    try {
      for (const Decision& d : all_.decisions) {
        const LayerFacts facts = apply(d);
        for (PlanRow& row : rows_of(all_, d, facts, bn_fold_)) plan.rows.push_back(std::move(row));
      }
    } catch (...) {
      for (; !replaced_.empty(); replaced_.pop_back()) {
        replaced_.back().former->set_replaced_by("");
        replaced_.back().slot->replace(std::move(replaced_.back().former));
      }
      throw;
    }
    return plan;
  }

 private:
  // A slot with what was in it.
  struct Replaced {
    Slot* slot;
    std::shared_ptr<Module> former;
  };

  LayerFacts apply(const Decision& d) {
    const ModuleNode& node = all_.nodes[d.node];
    FormRequest request;
    switch (d.kind) {
      case Decision::Kind::kWeighted:
        return apply_weighted(d);
      case Decision::Kind::kOwnOutput:
        drop_activation(d);
        request.output = d.output;
        request.activation = d.activated;
        [[fallthrough]];
      case Decision::Kind::kPassesThrough:
        replace(*node.slot, node.form->make(**node.slot, request));
        break;
      case Decision::Kind::kWeightedFloat:
      case Decision::Kind::kContinues:
      case Decision::Kind::kFloat:
      case Decision::Kind::kNoForm:
      case Decision::Kind::kContainer:
      case Decision::Kind::kIdentity:
        break;
    }
    return {};
  }

  LayerFacts apply_weighted(const Decision& d) {
    std::string codes_of;
    const std::shared_ptr<QuantizedLayer> layer = swap_layer(d, codes_of);
    if (is_dynamic(d.config)) require_rows(*layer, d, all_.nodes[d.node].form->type);
    if (d.config.weights && d.config.activations) layer->multiply_groups_as_integers();
    if (d.quantizes_input) layer->add_input_quantizer(*d.config.activations);
    if (d.multiplied) {
      require_sums_fit(d.multiplied->scheme, d.config.weights->scheme,
                       layer->weight_by_output_channel(), d.place);
    }
    return {.has_bias = layer->bias().defined(),
            .has_groups = layer->has_groups(),
            .codes_of = std::move(codes_of)};
  }

  // Layers made of one module at several places have its parameters in common and, where these are
  // quantized alike, their quantizer. `folded`: the norm that their weights contain, or null;
  // `own_weights`: they were made with it, once and for all. Returns whose codes the layer has.
  std::string share(const std::shared_ptr<QuantizedLayer>& layer, const std::string& path,
                    const Module& module, const BatchNorm* folded, bool own_weights) {
    if (places_.at(&module) < 2) return "";
    std::vector<Made>& others = made_[{&module, folded}];
    if (!own_weights) {
      layer->share_parameters(own_variable(module, "weight"), own_variable(module, "bias"));
    } else if (!others.empty()) {
      layer->share_parameters(others[0].layer->weight(), others[0].layer->bias());
    }
    const auto* quantizer = layer->weight_quantizer();
    const auto same = std::find_if(others.begin(), others.end(), [&](const Made& other) {
      const auto* of_other = other.layer->weight_quantizer();
      return quantizer != nullptr && of_other != nullptr &&
             of_other->config() == quantizer->config();
    });
    if (same != others.end()) {
      layer->share_weight_quantizer(*same->layer);
      return same->path;
    }
    others.push_back({path, layer});
    return "";
  }

  // `codes_of`: as LayerFacts has it.
  std::shared_ptr<QuantizedLayer> swap_layer(const Decision& d, std::string& codes_of) {
    const ModuleNode& node = all_.nodes[d.node];
    const Module& module = **node.slot;
    const auto by_output_channel = [&](const Tensor& weight) {
      return node.form->by_output_channel ? node.form->by_output_channel(module, weight) : weight;
    };
    FormRequest request;
    request.config = d.config;
    request.weight = own_parameter(module, "weight");
    request.bias = own_parameter(module, "bias");
    request.activation = d.activated;
    if (!d.note.empty() && !is_dynamic(d.config)) request.config.activations.reset();
    require_groups_fit(request.config, by_output_channel(request.weight), d.place);
    const Slot* norm_slot = d.norm ? all_.nodes[*d.norm].slot : nullptr;
    const auto norm =
        norm_slot == nullptr ? nullptr : std::dynamic_pointer_cast<BatchNorm>(norm_slot->module());
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
    codes_of = share(layer, node.path, module,
                     bn_fold_ == BatchNormFold::kNone ? nullptr : norm.get(), drops_norm);
    replace(*node.slot, layer);
    replaced_.back().former->set_replaced_by("prepare() has put its quantized form in its place");
    if (drops_norm) {
      replace(*all_.nodes[*d.norm].slot, std::make_shared<Identity>());
    } else if (norm != nullptr) {
      // The norm stays in its slot; the layer before it computes it.
      const auto folded = std::make_shared<FoldedNorm>(norm, bn_fold_);
      replace(*all_.nodes[*d.norm].slot, folded);
      layer->take_norm(folded);
    }
    drop_activation(d);
    return layer;
  }

  void drop_activation(const Decision& d) {
    if (d.activation) replace(*all_.nodes[*d.activation].slot, std::make_shared<Identity>());
  }

  void replace(Slot& slot, std::shared_ptr<Module> module) {
    replaced_.push_back({&slot, slot.module()});
    slot.replace(std::move(module));
  }

  // The layer that was made for a module at a path.
  struct Made {
    std::string path;
    std::shared_ptr<QuantizedLayer> layer;
  };

  const Decisions& all_;
  BatchNormFold bn_fold_;
  std::map<const Module*, int> places_;  // at how many a module is
  // By the module and the norm that the weights contain, those with quantizers of their own.
  std::map<std::pair<const Module*, const Module*>, std::vector<Made>> made_;
  std::vector<Replaced> replaced_;  // in their order
};

// Of a parameter that the model no longer has: nothing would be trained by steps of it.
class ReplacedParameter : public FaultCheck {
 public:
  explicit ReplacedParameter(std::string name) : name_(std::move(name)) {}
  void after_backward() override {}
  void before_step() override {
    throw std::logic_error("[optimizer] '" + name_ +
                           "' is no parameter of the model since prepare() replaced its layer: "
                           "make the optimizer after prepare(), of the model that it returns");
  }

 private:
  std::string name_;
};

void refuse_steps_of_replaced(const std::vector<NamedParameter>& before, const Module& model) {
  std::set<const GradNode*> kept;
  for (const NamedParameter& p : model.named_parameters()) kept.insert(p.variable.node().get());
  for (const NamedParameter& p : before) {
    const auto& node = p.variable.node();
    if (!kept.contains(node.get())) node->check = std::make_shared<ReplacedParameter>(p.name);
  }
}

std::string note_of_fixed_point(Profile profile) {
  return std::string("profile ") + word_of(profile) +
         ": activations have the codes -128 to 127, weights of 8 bits -127 to 127; sums become "
         "codes "
         "by multiplier and shift, rounded " +
         (rounding_of(profile) == kernels::Rounding::kFixedOnce ? "once" : "twice") +
         ", as in TFLite Micro";
}

}  // namespace

PreparedModel prepare(std::shared_ptr<Module> model, const QuantizeConfig& config,
                      const QuantizedForms& own_forms) {
  if (!model) throw std::invalid_argument("[prepare] expected a model, got null");
  require_float32(*model);
  const std::vector<NamedParameter> before = model->named_parameters();
  auto root = std::make_shared<QatModel>(std::move(model));
  const Decisions all = decide(root->model(), config, own_forms);
  Plan plan = Applier(all, config.bn_fold).run();
  if (all.input) {
    root->quantize_input(*all.input);
    plan.rows.insert(plan.rows.begin(), input_row(*all.input));
  }
  if (is_fixed_point(config.profile)) plan.notes.push_back(note_of_fixed_point(config.profile));
  root->watch_parameters();
  refuse_steps_of_replaced(before, *root);
  return {root, std::move(plan)};
}

}  // namespace steelyard::qat
