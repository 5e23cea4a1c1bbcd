#include "steelyard/recipes/searches/mixed_precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/qat/ptq/bit_allocation.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/runs/device_costs.h"
#include "steelyard/recipes/schema/derived_recipe.h"
#include "steelyard/runtime/graph.h"

namespace steelyard {
namespace {

constexpr double kLrDivisor = 10;  // from a float run to its fine-tuning

using Unit = WidthBudget::Unit;

std::int64_t parameter_bytes(const LayerSensitivity& layer, int bits) {
  return (layer.weights * deploy::stored_bits(bits) + 7) / 8 + 4 * (layer.scales + layer.biases) +
         (layer.affine ? layer.scales : 0);
}

std::int64_t bit_operations(const LayerSensitivity& layer, int bits, int activation_bits) {
  return layer.macs * bits * activation_bits;
}

std::int64_t cost_of(const LayerSensitivity& layer, int bits, Unit unit, int activation_bits) {
  switch (unit) {
    case Unit::kBitsPerWeight:
      return layer.weights * bits;
    case Unit::kBytes:
      return parameter_bytes(layer, bits);
    case Unit::kFlashBytes:
      return flash_bytes_of_layer(layer.weights, layer.scales, bits);
    case Unit::kBitOperations:
      return bit_operations(layer, bits, activation_bits);
  }
  return 0;
}

std::string to_string(const WidthBudget& budget) {
  switch (budget.unit) {
    case Unit::kBitsPerWeight:
      return fmt::format("{:.4g} bits a weight", budget.amount);
    case Unit::kBytes:
      return fmt::format("{:.0f} bytes", budget.amount);
    case Unit::kFlashBytes:
      return fmt::format("{:.0f} bytes of flash", budget.amount);
    case Unit::kBitOperations:
      return fmt::format("{:.0f} bit operations", budget.amount);
  }
  return "";
}

std::vector<const LayerSensitivity*> layers_with_weights(const Sensitivity& sensitivity) {
  std::vector<const LayerSensitivity*> layers;
  for (const LayerSensitivity& layer : sensitivity.layers) {
    if (layer.weights > 0) layers.push_back(&layer);
  }
  if (layers.empty()) {
    throw InputError(sensitivity.checkpoint.string() + ": no layer has weights to quantize");
  }
  return layers;
}

// The width of all activations, where they have one: as asked for, else as in the run.
std::optional<int> width_of_activations(const Sensitivity& sensitivity, std::optional<int> asked) {
  if (asked && sensitivity.activation_bits == kFloatBits) {
    throw InputError(sensitivity.checkpoint.string() +
                     ": --activation-bits has no effect: the run quantizes no activations");
  }
  return asked ? asked : sensitivity.activation_bits;
}

// The widths to choose among: those of `measured` at which the network's outputs are finite. Before
// anything is measured, all.
std::vector<QuantizationEffect> choices_of(const Sensitivity& measured,
                                           const LayerSensitivity& layer) {
  std::vector<QuantizationEffect> choices;
  if (layer.weight_effects.empty()) {
    for (const int bits : measured.bits) {
      choices.push_back({.bits = std::min(bits, layer.most_bits)});
    }
  }
  for (const QuantizationEffect& effect : layer.weight_effects) {
    if (std::isfinite(effect.divergence)) choices.push_back(effect);
  }
  if (choices.empty()) {
    throw InputError(measured.checkpoint.string() + ": " + printable(layer.name) +
                     ": at none of the measured widths are the network's outputs finite");
  }
  return choices;
}

// What a budget includes that no width changes.
std::int64_t fixed_cost(const Sensitivity& sensitivity, Unit unit) {
  return unit == Unit::kFlashBytes ? sensitivity.flash_beside_layers.value() : 0;
}

// For the layers, in whole units of cost. Rounding must not refuse a mean that is met exactly.
std::int64_t limit_of(const Sensitivity& sensitivity, const WidthBudget& budget,
                      std::int64_t weights) {
  constexpr double kLargest = 0x1p62;
  const double scale = budget.unit == Unit::kBitsPerWeight ? static_cast<double>(weights) : 1.0;
  const double limit = std::floor(budget.amount * scale * (1 + 1e-12)) -
                       static_cast<double>(fixed_cost(sensitivity, budget.unit));
  return static_cast<std::int64_t>(std::clamp(limit, -1.0, kLargest));
}

std::int64_t weights_of(const std::vector<const LayerSensitivity*>& layers) {
  std::int64_t weights = 0;
  for (const LayerSensitivity* layer : layers) weights += layer->weights;
  return weights;
}

std::vector<LayerWidth> layer_widths(const WidthPlan& plan) {
  std::vector<LayerWidth> layers;
  for (const ChosenWidth& chosen : plan.layers) {
    layers.push_back({chosen.layer, chosen.type, chosen.effect.bits});
  }
  return layers;
}

void divide(YamlNode& rate) {
  rate = yaml_scalar(format_number(*parse_number(rate.text) / kLrDivisor));
}

// For a float run: removes what belonged to its own training. Learned scales of many widths need a
// gentle start: with the full rate from the first step some seeds lose what the network knew.
void make_fine_tuning(YamlNode& document, std::int64_t epochs) {
  YamlNode& train = *document.find("train");
  remove_entry(train, "only");
  divide(*train.find("optimizer")->find("lr"));
  YamlNode& lr_schedule = *train.find("lr_schedule");
  const double warmup = std::min(1.0, static_cast<double>(epochs) / 2);
  set_entry(lr_schedule, "warmup_epochs", yaml_scalar(format_number(warmup)));
  if (YamlNode* final_lr = lr_schedule.find("final_lr")) divide(*final_lr);
  if (YamlNode* schedule = document.find("schedule")) {
    for (const char* of_batch_norms : {"freeze_bn", "reestimate_bn"}) {
      remove_entry(*schedule, of_batch_norms);
    }
  }
}

// What choose_widths() says.
void require_budget(const Sensitivity& layers, const WidthBudget& budget,
                    std::optional<int> activation_bits) {
  activation_bits = width_of_activations(layers, activation_bits);
  if (budget.unit == Unit::kBitOperations && !activation_bits) {
    throw InputError(layers.checkpoint.string() +
                     ": its activations have several widths; bit operations are counted for one: "
                     "pass --activation-bits");
  }
  const std::vector<const LayerSensitivity*> with_weights = layers_with_weights(layers);
  const std::int64_t weights = weights_of(with_weights);
  std::int64_t smallest = 0;
  for (const LayerSensitivity* layer : with_weights) {
    const std::vector<QuantizationEffect> choices = choices_of(layers, *layer);
    const int bits = std::min_element(choices.begin(), choices.end(), [](auto& a, auto& b) {
                       return a.bits < b.bits;
                     })->bits;
    smallest += cost_of(*layer, bits, budget.unit, activation_bits.value_or(0));
  }
  if (smallest <= limit_of(layers, budget, weights)) return;
  auto needed = static_cast<double>(smallest + fixed_cost(layers, budget.unit));
  if (budget.unit == Unit::kBitsPerWeight) needed /= static_cast<double>(weights);
  throw InputError("the budget of " + to_string(budget) +
                   " is too small: the smallest measured widths need " +
                   to_string(WidthBudget{budget.unit, needed}));
}

// As YAML comments; names may hold anything that a recipe's text may.
std::string comments(const Sensitivity& sensitivity, const WidthPlan& plan) {
  std::string text = fmt::format(
      "{}: the least sum of divergences, each of one layer's\n"
      "# weights quantized alone, on {} {} samples ({}).\n"
      "# {}; sum of divergences {:.3g}\n#\n",
      kWidthsTitle, sensitivity.samples, sensitivity.split,
      sensitivity.baseline.top1 ? "nats" : "mean squared difference", to_string(plan),
      plan.divergence);
  std::size_t width = 5;
  for (const ChosenWidth& layer : plan.layers) width = std::max(width, layer.layer.size());
  text += fmt::format("# {:<{}}  {:>9}  {:>4}  {:>7}  {:>10}\n", "layer", width, "weights", "bits",
                      "SQNR dB", "divergence");
  for (const ChosenWidth& layer : plan.layers) {
    text += fmt::format("# {:<{}}  {:>9}  {:>4}  {:>7}  {:>10.3g}\n", layer.layer, width,
                        layer.weights, layer.effect.bits,
                        layer.effect.sqnr_db ? fmt::format("{:.1f}", *layer.effect.sqnr_db) : "-",
                        layer.effect.divergence);
  }
  return text + "\n";
}

}  // namespace

std::string to_string(const WidthPlan& plan) {
  std::string text =
      fmt::format("{:.4g} bits a weight, {} bytes of parameters", plan.bits_per_weight, plan.bytes);
  if (plan.flash_bytes) text += fmt::format(", {} bytes of flash", *plan.flash_bytes);
  if (plan.bit_operations) {
    text += fmt::format(", {} bit operations a sample with {} bits for activations",
                        *plan.bit_operations, *plan.activation_bits);
  }
  return text;
}

void require_float_start(const Recipe& run) {
  if (!run.quantize || run.init_checkpoint) return;
  throw InputError(run.resolved.place +
                   ": a quantized run without init.checkpoint: there are no float weights to start "
                   "from; search on a float run");
}

WidthPlan choose_widths(const Sensitivity& sensitivity, const WidthBudget& budget,
                        std::optional<int> activation_bits) {
  require_budget(sensitivity, budget, activation_bits);
  activation_bits = width_of_activations(sensitivity, activation_bits);
  const std::vector<const LayerSensitivity*> layers = layers_with_weights(sensitivity);
  const std::int64_t weights = weights_of(layers);
  std::vector<std::vector<QuantizationEffect>> effects;
  std::vector<std::vector<qat::WidthChoice>> choices;
  for (const LayerSensitivity* layer : layers) {
    effects.push_back(choices_of(sensitivity, *layer));
    choices.emplace_back();
    for (const QuantizationEffect& effect : effects.back()) {
      choices.back().push_back(
          {cost_of(*layer, effect.bits, budget.unit, activation_bits.value_or(0)),
           effect.divergence});
    }
  }
  const qat::Allocation found =
      qat::allocate_widths(choices, limit_of(sensitivity, budget, weights)).value();
  WidthPlan plan{.activation_bits = activation_bits, .divergence = found.error};
  if (activation_bits) plan.bit_operations = 0;
  plan.flash_bytes = sensitivity.flash_beside_layers;
  std::int64_t bits = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerSensitivity& layer = *layers[i];
    const QuantizationEffect& effect = effects[i][found.choice[i]];
    plan.layers.push_back({layer.name, layer.type, layer.weights, effect});
    bits += layer.weights * effect.bits;
    plan.bytes += parameter_bytes(layer, effect.bits);
    if (plan.flash_bytes) {
      *plan.flash_bytes += flash_bytes_of_layer(layer.weights, layer.scales, effect.bits);
    }
    if (activation_bits) {
      *plan.bit_operations += bit_operations(layer, effect.bits, *activation_bits);
    }
  }
  plan.bits_per_weight = static_cast<double>(bits) / static_cast<double>(weights);
  return plan;
}

std::string mixed_precision_recipe(const Recipe& run, const Sensitivity& sensitivity,
                                   const WidthPlan& plan, const std::vector<std::string>& overrides,
                                   const Registries& registries) {
  require_float_start(run);
  YamlNode document = run.resolved;
  set_entry(document, "name", yaml_scalar(run.name + "-mixed"));
  YamlNode quantize = yaml_table({});
  if (run.quantize) {
    quantize = *document.find("quantize");
    // Removes the stages that led to the run's own widths.
    if (YamlNode* schedule = document.find("schedule")) remove_entry(*schedule, "bits");
  } else {
    YamlNode path = yaml_scalar(sensitivity.checkpoint.string());
    path.quoted = true;
    set_entry(document, "init", yaml_table({{"checkpoint", std::move(path)}}));
    make_fine_tuning(document, run.train.trainer.epochs);
    set_entry(quantize, "algorithm", yaml_table({{"method", yaml_scalar("lsq")}}));
  }
  set_entry(quantize, "groups",
            groups_of_widths(run, layer_widths(plan), plan.activation_bits, sensitivity.observers));
  set_entry(document, "quantize", std::move(quantize));
  const Recipe recipe = parse_recipe(to_yaml(document), run.name + "-mixed", overrides, registries);
  return comments(sensitivity, plan) + resolved_yaml(recipe);
}

}  // namespace steelyard
