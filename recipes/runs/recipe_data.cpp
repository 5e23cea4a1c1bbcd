#include "steelyard/recipes/runs/recipe_data.h"

#include <re2/re2.h>

#include <algorithm>
#include <filesystem>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

// What files do not say themselves.
std::optional<TargetKind> targets_of(const Recipe& recipe) {
  const TargetKind kind = loss_info(recipe.train.trainer.loss).targets;
  const bool told = kind == TargetKind::kMarks || kind == TargetKind::kText;
  return told ? std::optional(kind) : std::nullopt;
}

// Whether the targets are numbers or columns of a table, which are the names themselves.
bool takes_names(const Recipe& recipe) {
  const auto& table = recipe.data.table;
  return !table || (!table->regression && table->target.size() == 1);
}

TargetOptions target_options(const Recipe& recipe, const InputFormat* trained_on,
                             const std::vector<std::string>& class_names) {
  const DataSpec& data = recipe.data;
  if (!data.labels) return {};
  TargetOptions options{.kind = targets_of(recipe), .separator = data.label_separator};
  if (trained_on != nullptr) {
    options.classes = trained_on->classes;
    return options;
  }
  if (!class_names.empty() && takes_names(recipe)) {
    options.names = class_names;
    options.names_source =
        data.class_names ? "the checkpoint" : printable(*recipe.model.file()) + ": class_names";
    return options;
  }
  if (!data.class_names) return options;
  try {
    options.names = read_names(*data.class_names, options.kind == TargetKind::kText);
  } catch (const InputError& error) {
    fail_at(recipe.resolved.find("data")->find("class_names")->place, error.what());
  }
  options.names_source = printable(*data.class_names);
  return options;
}

// Where the recipe has the first of its keys that the message names ("data.table.target"), else
// where it says which dataset.
const std::string& place_of(const std::string& message, const YamlNode& data, bool has_path) {
  static const re2::RE2 key(R"((?:^|[ (])data\.([a-z_]+)(?:\.([a-z_]+))?)");
  std::string outer;
  std::string inner;
  for (re2::StringPiece rest = message; re2::RE2::FindAndConsume(&rest, key, &outer, &inner);) {
    const YamlNode* named = data.find(outer);
    if (named != nullptr && !inner.empty()) named = named->find(inner);
    if (named != nullptr) return named->place;
  }
  return data.find(has_path ? "path" : "dataset")->place;
}

}  // namespace

DatasetSplits load_splits(const Recipe& recipe, const DatasetRegistry& datasets, DatasetParts parts,
                          const InputFormat* trained_on,
                          const std::optional<std::vector<std::string>>& class_names) {
  const DataSpec& data = recipe.data;
  const std::vector<std::string> names = datasets.names();
  const bool known = std::find(names.begin(), names.end(), data.dataset) != names.end();
  const TargetOptions targets =
      target_options(recipe, trained_on, class_names.value_or(std::vector<std::string>()));
  try {
    // Absolute, so that a message says where the dataset was looked for.
    return datasets.load(
        {.name = data.dataset,
         .path = data.path ? std::filesystem::absolute(*data.path) : std::filesystem::path(),
         .parts = parts,
         .transforms = data.transforms,
         .table = data.table,
         .tokens = data.tokens,
         .labels = data.labels,
         .targets = targets,
         .test_samples = data.test,
         .stratified = data.stratified,
         .inputs = data.inputs,
         // Earlier versions had images for every model.
         .sequences =
             takes_sequences(recipe.model) && (!trained_on || trained_on->sample.size() != 3),
         .options = data.dataset_options,
         .without_names = class_names && class_names->empty() && !data.class_names,
         .names = trained_on ? std::optional(trained_on->names) : std::nullopt});
  } catch (const InputError& error) {
    const YamlNode& table = *recipe.resolved.find("data");
    if (data.made_by && !std::filesystem::exists(*data.path)) {
      fail_at(table.find("path")->place,
              printable(std::filesystem::absolute(*data.path).string()) +
                  ": there are no data yet; they are made by: " + printable(*data.made_by));
    }
    fail_at(place_of(error.what(), table, known && data.path), error.what());
  }
}

}  // namespace steelyard
