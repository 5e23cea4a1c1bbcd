// Recipes made from a run's recipe: other widths, everything else kept.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/module.h"
#include "recipes/recipe.h"

namespace steelyard {

// Which layer types that can be quantized a float model has: "Conv2d", "Linear".
std::vector<std::string> quantizable_types(Module& model);

// How ranges are found, as recipes name it.
struct ObserverNames {
  std::string weights = "mse";
  std::string activations = "histogram";
};

// Modules that share widths.
struct WidthGroup {
  std::vector<std::string> targets;
  int weight_bits = 8;
  int activation_bits = 8;
};

// The `quantize.groups` of a recipe with every width and every observer replaced; ranges of weights
// by the default of the algorithm. For a float recipe one group of `float_targets`.
YamlNode groups_of_width(const Recipe& recipe, const std::vector<std::string>& float_targets,
                         int bits, const ObserverNames& observers);

// `quantize.groups` with a group for each of `widths`, else as the recipe's first group that has
// weights. For a float recipe the defaults with `observers`.
YamlNode groups_of_widths(const Recipe& recipe, const std::vector<WidthGroup>& widths,
                          const ObserverNames& observers);

// The text of a recipe for measuring and not for training: data, model, loss and the placement of
// quantizers, with these groups and the straight-through estimator, or in float without any.
// `init_checkpoint`: absent where empty.
std::string measuring_recipe(const Recipe& recipe, const std::optional<YamlNode>& groups,
                             const std::string& init_checkpoint);

// YAML values.
YamlNode yaml_scalar(std::string text);
YamlNode yaml_table(std::vector<std::pair<std::string, YamlNode>> entries);
YamlNode yaml_list(const std::vector<std::string>& texts);
// Sets or appends a table's entry.
void set_entry(YamlNode& table, const std::string& key, YamlNode value);
void remove_entry(YamlNode& table, std::string_view key);

}  // namespace steelyard
