// The option table of recipes.
#pragma once

#include <string>

#include "steelyard/recipes/language/option_table.h"
#include "steelyard/recipes/models/model_registry.h"

namespace steelyard {

// The root table. `registry` gives the layers and models and must outlive the result.
RecipeOption recipe_options(const ModelRegistry& registry);

// JSON Schema of recipes.
std::string recipe_schema(const ModelRegistry& registry);

// The page docs/recipes.md.
std::string recipe_markdown(const ModelRegistry& registry);

}  // namespace steelyard
