#include "steelyard/recipes/runs/loaded_run.h"

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/qat/model/old_checkpoint.h"
#include "steelyard/qat/model/saved_state.h"
#include "steelyard/recipes/language/recipe_differences.h"
#include "steelyard/recipes/runs/records/run_folder.h"

namespace steelyard {
namespace {

// The parts of a recipe that decide what a checkpoint's tensors compute.
bool decides_on_the_model(const std::string& key) {
  return key.starts_with("model") || key.starts_with("quantize") || key == "export.profile" ||
         key == "export.reduce_range";
}

bool lies_in(const std::filesystem::path& folder, const std::filesystem::path& checkpoint) {
  std::error_code error;
  return std::filesystem::equivalent(std::filesystem::absolute(checkpoint).parent_path(), folder,
                                     error);
}

// Throws InputError if the recipe in the folder describes another model than the one that was
// trained. A checkpoint from elsewhere may be of another training, not of another model.
void require_trained_by(const std::filesystem::path& folder, const Recipe& recipe,
                        const std::filesystem::path& checkpoint, RunRecord record) {
  const YamlNode in_folder = essential_recipe(recipe);
  take_more_epochs(record.recipe, in_folder);  // the run goes on to more
  auto differences = recipe_differences(in_folder, record.recipe);
  const bool own = lies_in(folder, checkpoint);
  if (!own) std::erase_if(differences, [](const auto& d) { return !decides_on_the_model(d.key); });
  if (differences.empty()) return;
  if (!own) {
    throw InputError(printable(checkpoint.string()) + ": is of another model than " +
                     printable(folder.string()) + ": " + to_string(differences, "trained with"));
  }
  throw InputError(printable((folder / run_files::kRecipe).string()) + ": is not the recipe that " +
                   printable(checkpoint.filename().string()) +
                   " was trained with: " + to_string(differences, "trained with"));
}

}  // namespace

LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                   const Registries& registries, RunData data) {
  const bool named = checkpoint == "last" || checkpoint == "best";
  LoadedRun run;
  run.checkpoint =
      named ? folder / (checkpoint + ".safetensors") : std::filesystem::path(checkpoint);
  const std::string name = run.checkpoint.string();
  Recipe recipe = recipe_of_run(folder, registries);
  if (named && !path_exists(run.checkpoint)) {
    const std::string other = checkpoint == "last" ? "best" : "last";
    const bool has_other = path_exists(folder / (other + ".safetensors"));
    throw InputError(printable(name) + ": the run has no such checkpoint" +
                     (has_other ? ", but one named " + other : ""));
  }
  Checkpoint saved = load_checkpoint(run.checkpoint);
  if (const auto record = record_in(saved.metadata, name, registries)) {
    require_trained_by(folder, recipe, run.checkpoint, *record);
    run.experiment = std::make_unique<Experiment>(std::move(recipe), registries, *record, data);
    run.sources = record->sources;
    const bool test_aside = data != RunData::kNone && run.experiment->recipe().data.test;
    if ((data == RunData::kAll || test_aside) &&
        run.experiment->data_digest() != record->data_digest) {
      const std::string other = name + ": the training data is not what the run was trained on";
      const std::string test = test_aside ? ": data.test sets other samples aside" : "";
      if (test_aside && lies_in(folder, run.checkpoint)) {
        throw InputError(other + test + ", which the run may have trained on; restore the data");
      }
      run.notes.push_back(other + test);
    }
  } else {
    run.experiment =
        std::make_unique<Experiment>(std::move(recipe), registries, InitialWeights::kLater, "",
                                     KnownData{.target_normalization = Normalization{},
                                               .class_names = std::vector<std::string>()});
    run.notes.push_back(name +
                        ": an earlier version wrote it, without its normalization, which is taken "
                        "from the recipe and the training data that is there now");
  }
  run.model_sha256 = model_digest(saved.tensors);
  qat::upgrade_checkpoint(run.experiment->model(), saved);
  qat::require_quantizer_state(run.experiment->model(), saved, name);
  load_into(run.experiment->model(), saved.tensors, name);
  return run;
}

std::string model_digest(const std::filesystem::path& checkpoint) {
  return model_digest(load_checkpoint(checkpoint).tensors);
}

std::optional<std::string> checkpoint_of_digest(const std::filesystem::path& folder,
                                                const std::string& digest) {
  for (const char* name : {"last", "best"}) {
    const std::filesystem::path own = folder / (std::string(name) + ".safetensors");
    if (path_exists(own) && model_digest(own) == digest) return name;
  }
  return std::nullopt;
}

}  // namespace steelyard
