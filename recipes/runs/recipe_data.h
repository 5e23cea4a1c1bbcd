// The data that a recipe names.
#pragma once

#include <optional>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// Both sets, before validation samples are set aside. `trained_on`: what the data of a trained
// model stands for. Throws InputError that begins with the place in the recipe.
DatasetSplits load_splits(const Recipe& recipe, const DatasetRegistry& datasets,
                          DatasetParts parts = DatasetParts::kAll,
                          const std::optional<DatasetNames>& trained_on = std::nullopt);

}  // namespace steelyard
