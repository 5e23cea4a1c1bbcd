#include "steelyard/recipes/runs/recipe_data.h"

#include <algorithm>
#include <filesystem>

#include "steelyard/framework/error.h"

namespace steelyard {

DatasetSplits load_splits(const Recipe& recipe, const DatasetRegistry& datasets, DatasetParts parts,
                          const std::optional<DatasetNames>& trained_on) {
  const DataSpec& data = recipe.data;
  const std::vector<std::string> names = datasets.names();
  const bool known = std::find(names.begin(), names.end(), data.dataset) != names.end();
  try {
    // Absolute, so that a message says where the dataset was looked for.
    return datasets.load(
        {.name = data.dataset,
         .path = data.path ? std::filesystem::absolute(*data.path) : std::filesystem::path(),
         .parts = parts,
         .transforms = data.transforms,
         .table = data.table,
         .test_samples = data.test,
         .names = trained_on});
  } catch (const InputError& error) {
    const YamlNode& table = *recipe.resolved.find("data");
    fail_at(table.find(known && data.path ? "path" : "dataset")->place, error.what());
  }
}

}  // namespace steelyard
