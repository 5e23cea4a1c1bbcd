// Keys that a recipe has and nothing reads.
#pragma once

#include <string>
#include <vector>

#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// A line for each key that has another value than its default and no effect with this dataset or
// these other keys. `table`: whether the dataset is one.
std::vector<std::string> notes_of_unused_keys(const Recipe& recipe, bool table,
                                              std::int64_t steps_per_epoch);

}  // namespace steelyard
