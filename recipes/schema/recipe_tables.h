// The tables of a recipe's sections. Their rows, in *_rows.cpp and recipe_options.cpp, declare
// every key once, but for those of a program's own parts. The registries outlive the result.
#pragma once

#include "steelyard/recipes/language/option_rows.h"
#include "steelyard/recipes/schema/recipe.h"
#include "steelyard/recipes/schema/registries.h"

namespace steelyard {

Table<DataSpec> data_table(const Registries& registries);
Table<TrainSpec> train_table(const Registries& registries);
Table<QuantizeSpec> quantize_table(const Registries& registries);
// `quantize` of recipes with an export.target, and what the other ones' weights refuse of it.
Table<qat::BlockConfig> block_table();
std::vector<RecipeOption> block_weight_options();
// The sections that reach into several members of a recipe; `train` and `quantize` are read before.
Table<Recipe> calibrate_table();
Table<Recipe> schedule_table();
Table<Recipe> export_table();

// Checks a schedule against the rest of the recipe. Throws InputError.
void check_schedule(const OptionReader& schedule, const Recipe& recipe);

// Completes the blocks of a recipe with an export.target. Throws InputError for scales that are not
// searched for a type.
void check_blocks(const OptionReader& from, Recipe& recipe);

// The whole recipe.
Table<Recipe> recipe_table(const Registries& registries);
// That of a recipe with an export.target.
Table<Recipe> target_table(const Registries& registries);
// What is left of it where data, model and training are a host's (hosted_recipe.h).
Table<Recipe> hosted_table(const Registries& registries);

// Largest count of anything.
inline constexpr double kMaxCount = 1e9;

}  // namespace steelyard
