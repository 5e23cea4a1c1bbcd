// The data that a recipe names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset_registry.h"
#include "steelyard/recipes/runs/records/run_record.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// Both sets, before validation samples are set aside. `trained_on`: the record of a trained model,
// whose samples these should be. `class_names`: those of model.onnx or of a run that is continued,
// in place of a list of the data; empty where that has none. Throws InputError that begins with the
// place in the recipe.
DatasetSplits load_splits(const Recipe& recipe, const DatasetRegistry& datasets,
                          DatasetParts parts = DatasetParts::kAll,
                          const InputFormat* trained_on = nullptr,
                          const std::optional<std::vector<std::string>>& class_names = {});

}  // namespace steelyard
