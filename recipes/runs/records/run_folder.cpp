#include "steelyard/recipes/runs/records/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/language/recipe_differences.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/records/metrics_history.h"

namespace steelyard {
namespace {

void require_same_recipe(const std::string& what, YamlNode of_run, const YamlNode& given) {
  take_more_epochs(of_run, given);
  const auto differences = recipe_differences(of_run, given);
  if (differences.empty()) return;
  throw InputError(what + ": differs from the recipe given: " + to_string(differences, "given") +
                   ": resume with the recipe of the run (train.epochs may only grow)");
}

void require_same_data(const RunOptions& options, const Experiment& experiment,
                       const RunRecord& record) {
  const std::string last = printable((options.folder / run_files::kLast).string());
  if (record.input != experiment.input()) {
    throw InputError(last + ": was trained on " + to_string(record.input) + ", the dataset has " +
                     to_string(experiment.input()) +
                     difference_of_names(record.input.names, experiment.input().names));
  }
  if (record.data_digest == experiment.data_digest()) return;
  const std::string found = "the training data is not what the run was trained on so far (sha256 " +
                            record.data_digest + ", now " + experiment.data_digest() + ")";
  if (experiment.recipe().data.test) {
    throw InputError(last + ": " + found +
                     ", and data.test sets other samples aside, which the run may have trained "
                     "on: restore the data");
  }
  if (!options.other_data) {
    throw InputError(last + ": " + found +
                     ": restore the data, or pass --other-data to continue with the present data");
  }
  options.note(found + "; inputs are normalized as before");
}

// The teacher is loaded again when a run resumes. Without this check another model could take its
// place. A plugin may have been built again to mend it.
void require_same_sources(const RunOptions& options, const RunRecord& of_run,
                          const RunRecord& now) {
  const std::filesystem::path last = options.folder / run_files::kLast;
  for (const auto& [key, digest] : now.sources) {
    const auto before = of_run.sources.find(key);
    if (before == of_run.sources.end() || before->second == digest) continue;
    if (key.starts_with(kPluginSource)) {
      options.note("the " + printable(key) +
                   " is another build than the run was trained with so far (sha256 " +
                   before->second + ", now " + digest + ")");
      continue;
    }
    throw InputError(printable(last.string()) + ": " + key +
                     " is not the checkpoint that the run was trained with so far (sha256 " +
                     before->second + ", now " + digest + "): restore it");
  }
}

// A run resumes with its own recipe, on its own data.
void require_same_run(const RunOptions& options, const Experiment& experiment,
                      const Registries& registries) {
  const std::filesystem::path path = options.folder / run_files::kRecipe;
  const std::filesystem::path last = options.folder / run_files::kLast;
  const Recipe of_run = recipe_of_run(options.folder, registries);
  const Recipe& given = experiment.recipe();
  require_same_recipe(path.string(), lasting_recipe(of_run), lasting_recipe(given));
  const auto record = record_in(load_checkpoint_metadata(last), last.string(), registries);
  if (record) {
    require_same_recipe(last.string(), record->recipe, essential_recipe(given));
    require_same_data(options, experiment, *record);
    require_same_sources(options, *record, experiment.record());
  }
}

std::optional<std::int64_t> number_in_checkpoint(const std::filesystem::path& path,
                                                 const char* key) {
  if (!path_exists(path)) return std::nullopt;
  const TensorFileMetadata metadata = load_checkpoint_metadata(path);
  const auto number = metadata.find(key);
  return number == metadata.end() ? std::nullopt : parse_integer(number->second);
}

// Whether a run that lost its last checkpoint has something that only its owner may remove.
bool has_results(const std::filesystem::path& folder) {
  if (path_exists(folder / run_files::kSummary)) return true;
  // Files of a first epoch may be left by a run that was killed before it saved its last
  // checkpoint.
  try {
    if (epoch_of_best(folder / run_files::kBest).value_or(0) > 0) return true;
  } catch (const InputError&) {  // of no use to anybody
  }
  const std::filesystem::path metrics = folder / run_files::kMetrics;
  if (path_exists(metrics) && read_metrics(metrics).epochs.size() > 1) return true;
  std::error_code error;
  const std::filesystem::directory_iterator files(folder, error);
  if (error) throw InputError(printable(folder.string()) + ": " + error.message());
  for (const auto& entry : files) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) return true;
  }
  return false;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor_);
    throw InputError("run folder " + printable(folder.string()) + " is in use by another process");
  }
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

void store_changed_recipe(const std::filesystem::path& folder, const Recipe& recipe,
                          const Registries& registries) {
  const auto without_device = [](YamlNode document) {
    remove_entry(document, "device");
    return document;
  };
  const Recipe of_run = recipe_of_run(folder, registries);
  if (without_device(of_run.resolved) == without_device(recipe.resolved)) return;
  write_file_atomic(folder / run_files::kRecipe, resolved_yaml(recipe));
}

std::string difference_from_recipe(const std::filesystem::path& checkpoint, const Recipe& recipe,
                                   const Registries& registries) {
  const auto record =
      record_in(load_checkpoint_metadata(checkpoint), checkpoint.string(), registries);
  if (!record) return "";
  const auto differences = recipe_differences(record->recipe, essential_recipe(recipe));
  return differences.empty() ? "" : to_string(differences, "given");
}

std::optional<std::int64_t> epoch_of_best(const std::filesystem::path& path) {
  return number_in_checkpoint(path, "best_epoch");
}

std::optional<std::int64_t> step_of_checkpoint(const std::filesystem::path& path) {
  return number_in_checkpoint(path, "step");
}

bool has_checkpoint(const std::filesystem::path& folder) {
  return path_exists(folder / run_files::kLast);
}

void require_no_other_run(const RunOptions& options) {
  if (options.resume || !has_checkpoint(options.folder)) return;
  throw InputError(options.folder.string() +
                   ": already holds a run: pass another --run-dir or remove the folder; `steelyard "
                   "train --resume` trains on in it");
}

RunLock open_run(const RunOptions& options, const Experiment& experiment,
                 const Registries& registries) {
  create_folders(options.folder);
  RunLock lock(options.folder);
  require_no_other_run(options);
  const std::filesystem::path recipe_path = options.folder / run_files::kRecipe;
  if (has_checkpoint(options.folder)) {
    require_same_run(options, experiment, registries);
    return lock;
  }
  const std::string resolved = resolved_yaml(experiment.recipe());
  std::error_code error;
  if (std::filesystem::equivalent(options.recipe_file, recipe_path, error) &&
      read_file(recipe_path, kMaxYamlBytes) != resolved) {
    throw InputError(
        printable(recipe_path.string()) +
        ": is the recipe itself, which the run would replace by the resolved one: pass "
        "another --run-dir");
  }
  if (has_results(options.folder)) {
    throw InputError(options.folder.string() + ": holds the results of a run but no " +
                     run_files::kLast +
                     ": copy one of its checkpoints there, or pass another --run-dir");
  }
  // Files that a run left when it was killed before its first checkpoint would be taken for this
  // run's.
  for (const char* stale :
       {run_files::kBest, run_files::kMetrics, run_files::kEvents, run_files::kPlan}) {
    std::filesystem::remove(options.folder / stale, error);
    if (error) throw InputError((options.folder / stale).string() + ": " + error.message());
  }
  if (experiment.plan())
    write_file_atomic(options.folder / run_files::kPlan, qat::to_string(*experiment.plan()));
  write_file_atomic(recipe_path, resolved);
  return lock;
}

Recipe recipe_of_run(const std::filesystem::path& folder, const Registries& registries) {
  const std::filesystem::path path = folder / run_files::kRecipe;
  if (!path_exists(path)) {
    const std::string found = is_folder(folder) ? "this folder has no " + path.filename().string()
                              : path_exists(folder) ? "this is a file"
                                                    : "there is none";
    throw InputError(printable(folder.string()) + ": expected a run's folder, " + found);
  }
  return parse_recipe(read_file(path, kMaxYamlBytes), path.string(), {}, registries);
}

}  // namespace steelyard
