// The option table of recipes.
#pragma once

#include <string>

#include "steelyard/recipes/language/option_table.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

// The root table. The registries outlive the result.
RecipeOption recipe_options(const Registries& registries);

// JSON Schema of recipes.
std::string recipe_schema(const Registries& registries);

// The page docs/recipes.md.
std::string recipe_markdown(const Registries& registries);

}  // namespace steelyard
