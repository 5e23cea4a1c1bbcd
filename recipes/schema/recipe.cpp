#include "steelyard/recipes/schema/recipe.h"

#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/files.h"
#include "steelyard/recipes/language/overrides.h"
#include "steelyard/recipes/language/scalar.h"
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

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& source,
                    const std::vector<std::string>& overrides, const ModelRegistry& registry) {
  YamlNode document = parse_yaml(text, source);
  for (const std::string& assignment : overrides) apply_override(document, assignment);
  return read_recipe(std::move(document), registry);
}

Recipe read_recipe(YamlNode document, const ModelRegistry& registry) {
  const Table<Recipe> table = recipe_table(registry);
  Recipe recipe{.resolved = resolve_options(document, table.option(), "")};
  table.read(recipe.resolved, recipe);
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

Recipe load_recipe(const std::string& path_or_preset, const std::vector<std::string>& overrides,
                   const ModelRegistry& registry) {
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) {
    if (preset.name == path_or_preset) {
      return parse_recipe(preset.text, path_or_preset + ".yaml", overrides, registry);
    }
    names.emplace_back(preset.name);
  }
  if (!path_exists(path_or_preset)) {
    throw InputError("no recipe file and no preset " + quote_for_message(path_or_preset) +
                     did_you_mean(path_or_preset, names) + "; presets: " + join(names));
  }
  require_text(path_or_preset);
  return parse_recipe(read_file(path_or_preset, kMaxYamlBytes),
                      printable(path_or_preset, kMaxPathBytes), overrides, registry);
}

std::string resolved_yaml(const Recipe& recipe) { return to_yaml(recipe.resolved); }

}  // namespace steelyard
