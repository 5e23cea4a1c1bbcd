#include "steelyard/recipes/schema/recipe.h"

#include <algorithm>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/language/overrides.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {
namespace {

std::int64_t count_values(const YamlNode& node) {
  std::int64_t count = 1;
  for (const YamlNode& item : node.items) count += count_values(item);
  for (const YamlEntry& entry : node.entries) count += 1 + count_values(entry.value);
  return count;
}

// A run keeps its recipe with all defaults, which must be one that can be read.
void require_readable(const YamlNode& resolved) {
  const std::int64_t values = count_values(resolved);
  const std::size_t bytes = to_yaml(resolved).size();
  if (values <= kMaxYamlNodes && bytes <= kMaxYamlBytes) return;
  fail_at(resolved.place, "with its defaults the recipe has " + std::to_string(values) +
                              " values in " + std::to_string(bytes) + " bytes: expected at most " +
                              std::to_string(kMaxYamlNodes) + " values in " +
                              std::to_string(kMaxYamlBytes) + " bytes");
}

// Where a recipe says what it needs, this is said before its unknown keys are. What is malformed is
// left to the table.
void require_parts(const YamlNode& document, const Registries& registries) {
  const YamlNode* needs = document.find("needs");
  if (needs == nullptr) return;
  for (const YamlNode& item : needs->items) {
    const YamlNode* kind = item.find("kind");
    const YamlNode* name = item.find("name");
    if (kind == nullptr || name == nullptr) continue;
    for (const Word<PartKind>& word : words_of(PartKind{})) {
      if (word.word != kind->text || registries.has(word.value, name->text)) continue;
      const YamlNode* plugin = item.find("plugin");
      const bool of_plugin = plugin != nullptr && !plugin->text.empty();
      fail_at(item.place,
              "the recipe needs the " + kind->text + " " + quote_for_message(name->text) +
                  (of_plugin ? " of the plugin " + printable(plugin->text) +
                                   ": pass --plugin with its shared object"
                             : ", which a C++ program added: use that program, or pass --plugin "
                               "with a shared object that has it"));
    }
  }
}

bool has_observer(const std::optional<QuantizeSpec>& quantize, const std::string& name) {
  if (!quantize) return false;
  return std::any_of(quantize->config.groups.begin(), quantize->config.groups.end(),
                     [&](const auto& group) {
                       const auto& [weights, activations] = group.config;
                       return (weights && weights->observer.type == name) ||
                              (activations && activations->observer.type == name);
                     });
}

bool uses(const Recipe& recipe, PartKind kind, const std::string& name) {
  const Loss& loss = recipe.train.trainer.loss;
  switch (kind) {
    case PartKind::kDataset:
      return recipe.data.dataset == name;
    case PartKind::kModel:
      return recipe.model.type == name;
    case PartKind::kLayer: {
      const YamlNode* layers = recipe.model.options.find("layers");
      return layers != nullptr && has_layer(*layers, name);
    }
    case PartKind::kLoss:
      return loss_name(loss) == name;
    case PartKind::kMetric:
      return has_metric(loss, *find_metric(name, loss));
    case PartKind::kObserver:
      return has_observer(recipe.quantize, name);
  }
  throw std::logic_error("[recipe] unknown kind of part");
}

// What the recipe uses of a program's parts, so that the recipe in a run's folder says it.
void note_needs(Recipe& recipe, const Registries& registries) {
  recipe.needs.clear();
  remove_entry(recipe.resolved, "needs");
  const auto text = [](const std::string& value) {
    YamlNode node = yaml_scalar(value);
    node.quoted = true;
    return node;
  };
  YamlNode list = yaml_list({});
  for (const OwnPart& part : registries.own_parts()) {
    if (!uses(recipe, part.kind, part.name)) continue;
    recipe.needs.push_back(part);
    list.items.push_back(yaml_table({{"kind", yaml_scalar(word_of(part.kind))},
                                     {"name", text(part.name)},
                                     {"plugin", text(part.plugin)}}));
  }
  if (!list.items.empty()) set_entry(recipe.resolved, "needs", std::move(list));
}

bool has_target(const YamlNode& document) {
  const YamlNode* exports = document.find("export");
  return exports != nullptr && exports->find("target") != nullptr;
}

YamlNode overridden(YamlNode document, const std::vector<std::string>& overrides) {
  for (const std::string& assignment : overrides) apply_override(document, assignment);
  return document;
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& source,
                    const std::vector<std::string>& overrides, const Registries& registries) {
  return read_recipe(overridden(parse_yaml(text, source), overrides), registries);
}

Recipe read_recipe(YamlNode document, const Registries& registries) {
  require_parts(document, registries);
  const Table<Recipe> table =
      has_target(document) ? target_table(registries) : recipe_table(registries);
  Recipe recipe{.resolved = resolve_options(document, table.option(), "")};
  table.read(recipe.resolved, recipe);
  note_needs(recipe, registries);
  require_readable(recipe.resolved);
  recipe.given = std::move(document);
  return recipe;
}

namespace {

// Refuses checkpoints, archives and the like by name, before their first non-text byte is reported.
void require_text(const std::filesystem::path& path) {
  const std::string kind = kind_of(InputFile(path));
  const bool text = kind == "YAML" || kind == "JSON" || kind == "text" || kind == "CSV" ||
                    kind == "blank text" || kind == "an empty file" || kind.empty();
  if (!text) {
    throw InputError(printable(path.string()) + ": not a recipe: it looks like " + kind);
  }
}

}  // namespace

YamlNode load_document(const std::string& path_or_preset,
                       const std::vector<std::string>& overrides) {
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) {
    if (preset.name == path_or_preset) {
      return overridden(parse_yaml(preset.text, path_or_preset + ".yaml"), overrides);
    }
    names.emplace_back(preset.name);
  }
  if (!path_exists(path_or_preset)) {
    throw InputError("no recipe file and no preset " + quote_for_message(path_or_preset) +
                     did_you_mean(path_or_preset, names) + "; presets: " + join(names));
  }
  require_text(path_or_preset);
  return overridden(parse_yaml(read_file(path_or_preset, kMaxYamlBytes),
                               printable(path_or_preset, kMaxPathBytes)),
                    overrides);
}

Recipe load_recipe(const std::string& path_or_preset, const std::vector<std::string>& overrides,
                   const Registries& registries) {
  return read_recipe(load_document(path_or_preset, overrides), registries);
}

std::string resolved_yaml(const Recipe& recipe) { return to_yaml(recipe.resolved); }

}  // namespace steelyard
