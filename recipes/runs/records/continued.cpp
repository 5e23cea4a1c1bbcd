#include "steelyard/recipes/runs/records/continued.h"

#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/models/exported_data.h"
#include "steelyard/recipes/runs/records/run_folder.h"
#include "steelyard/recipes/runs/records/run_record.h"

namespace steelyard {
namespace {

template <typename Node>
Node* algorithm_in(Node& document) {
  Node* quantize = document.find("quantize");
  return quantize == nullptr ? nullptr : quantize->find("algorithm");
}

// Where the recipe is silent, what the run took from its model's file or its data when it began,
// and the scale_lr that earlier versions had as a default.
Recipe completed(Recipe recipe, const Recipe& of_run, const Registries& registries) {
  YamlNode document = recipe.given;
  bool complete = true;
  const auto take = [&](YamlNode* table, const YamlNode* began_with, const std::string& key) {
    if (table == nullptr || table->find(key) != nullptr) return;
    if (began_with == nullptr || began_with->find(key) == nullptr) return;
    copy_entry(*table, *began_with, key);
    complete = false;
  };
  const auto take_in = [&](const char* section, const char* key) {
    take(document.find(section), of_run.resolved.find(section), key);
  };
  if (recipe.model.file()) {
    for (const auto& [section, key] : kExportedKeys) take_in(section, key);
  }
  if (recipe.calibrates) take_in("calibrate", "batches");
  take_in("data", "normalize_targets");
  take(algorithm_in(document), algorithm_in(of_run.resolved), "scale_lr");
  return complete ? std::move(recipe) : read_recipe(std::move(document), registries);
}

}  // namespace

Experiment continued(Recipe recipe, const Registries& registries,
                     const std::filesystem::path& folder) {
  const std::filesystem::path last = folder / run_files::kLast;
  const TensorFileMetadata metadata = load_checkpoint_metadata(last);
  recipe = completed(std::move(recipe), recipe_of_run(folder, registries), registries);
  return {std::move(recipe),
          registries,
          InitialWeights::kLater,
          network_in(metadata),
          {normalization_in(metadata, last.string()),
           target_normalization_in(metadata, last.string()).value_or(Normalization{}),
           dataset_names_in(metadata, last.string()).classes,
           {sources_in(metadata, last.string()), output_units_in(metadata, last.string())}}};
}

}  // namespace steelyard
