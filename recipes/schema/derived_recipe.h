// Recipes made from a run's recipe: other widths, everything else kept.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// The quantizable layer types that a float model contains: "Conv2d", "Linear".
std::vector<std::string> quantizable_types(Module& model, const qat::QuantizedForms& own_forms);

// How ranges are found, as recipes name it.
struct ObserverNames {
  std::string weights = "mse";
  std::string activations = "histogram";
};

// A layer with the width of its weights.
struct LayerWidth {
  std::string path;
  std::string type;  // "Conv2d"
  int weight_bits = 8;
};

// The quantization with which a float recipe is measured.
struct FloatDefaults {
  std::vector<std::string> targets;
  bool narrow_range = true;  // of weights
};

// The `quantize.groups` of a recipe with every width and every observer replaced; the range of
// weights is written out, since that of measuring_recipe() would be another where scales are
// learned. For a float recipe one group as `defaults` say.
YamlNode groups_of_width(const Recipe& recipe, const FloatDefaults& defaults, int bits,
                         const ObserverNames& observers, const Registries& registries);

// The recipe's `quantize.groups`, in their order, each divided by the widths of its layers, the
// widest first; `activation_bits` replaces the groups' own. A group without layers stays: sums and
// averages may follow it. For a float recipe one such group of defaults with `observers`. `layers`
// are all that have quantized weights, in the network's order.
YamlNode groups_of_widths(const Recipe& recipe, const std::vector<LayerWidth>& layers,
                          std::optional<int> activation_bits, const ObserverNames& observers);

// The text of a recipe for measuring and not for training: data, model, loss and the placement of
// quantizers, with these groups and the straight-through estimator, or in float without any.
// `init_checkpoint`: absent where empty.
std::string measuring_recipe(const Recipe& recipe, const std::optional<YamlNode>& groups,
                             const std::string& init_checkpoint);

}  // namespace steelyard
