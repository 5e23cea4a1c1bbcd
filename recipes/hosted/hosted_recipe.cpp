#include "steelyard/recipes/hosted/hosted_recipe.h"

#include "steelyard/recipes/schema/recipe_tables.h"

namespace steelyard {

Recipe parse_hosted_recipe(std::string_view text, const std::string& source,
                           const Registries& registries) {
  const YamlNode document = parse_yaml(text, source);
  const Table<Recipe> table = hosted_table(registries);
  Recipe recipe{.resolved = resolve_options(document, table.option(), "")};
  recipe.train.trainer.epochs = static_cast<std::int64_t>(kMaxCount);  // as many as the host wants
  table.read(recipe.resolved, recipe);
  recipe.given = document;
  return recipe;
}

}  // namespace steelyard
