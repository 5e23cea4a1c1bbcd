// The tables of a recipe's sections. Their rows, in *_rows.cpp and recipe_options.cpp, declare
// every key once.
#pragma once

#include "steelyard/recipes/language/option_rows.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

Table<DataSpec> data_table();
Table<TrainSpec> train_table();
Table<QuantizeSpec> quantize_table();
// The sections that reach into several members of a recipe; `train` and `quantize` are read before.
Table<Recipe> calibrate_table();
Table<Recipe> schedule_table();
Table<Recipe> export_table();

// Checks a schedule against the rest of the recipe. Throws InputError.
void check_schedule(const OptionReader& schedule, const Recipe& recipe);

// The whole recipe. `registry` gives the layers and models and must outlive the result.
Table<Recipe> recipe_table(const ModelRegistry& registry);

// Largest count of anything.
inline constexpr double kMaxCount = 1e9;

}  // namespace steelyard
