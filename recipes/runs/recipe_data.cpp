#include "steelyard/recipes/runs/recipe_data.h"

#include <algorithm>
#include <filesystem>

#include "steelyard/framework/error.h"

namespace steelyard {
namespace {

// What files do not say themselves.
std::optional<TargetKind> targets_of(const Recipe& recipe) {
  const TargetKind kind = loss_info(recipe.train.trainer.loss.type).targets;
  const bool told = kind == TargetKind::kMarks || kind == TargetKind::kText;
  return told ? std::optional(kind) : std::nullopt;
}

}  // namespace

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
         .targets = {.kind = targets_of(recipe), .separator = data.label_separator},
         .test_samples = data.test,
         .names = trained_on});
  } catch (const InputError& error) {
    const YamlNode& table = *recipe.resolved.find("data");
    fail_at(table.find(known && data.path ? "path" : "dataset")->place, error.what());
  }
}

}  // namespace steelyard
