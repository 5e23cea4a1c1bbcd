#include "steelyard/recipes/runs/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "steelyard/framework/error.h"
#include "steelyard/framework/files.h"
#include "steelyard/framework/folders.h"
#include "steelyard/framework/sha256.h"
#include "steelyard/qat/old_checkpoint.h"
#include "steelyard/qat/saved_state.h"
#include "steelyard/recipes/language/recipe_differences.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/metrics_history.h"
#include "steelyard/recipes/runs/metrics_log.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRecipe = "recipe.yaml";
constexpr const char* kPlan = "plan.txt";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kEvents = "events.out.tfevents.steelyard";
constexpr const char* kSummary = "summary.json";
constexpr const char* kLast = "last.safetensors";
constexpr const char* kBest = "best.safetensors";
constexpr std::uint64_t kMaxRecipeBytes = 256 * 1024;

void write_text(const std::filesystem::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void open_log(MetricsLog& log, const RunRequest& request, const Experiment& experiment,
              std::int64_t step, std::int64_t epochs) {
  const bool events = experiment.recipe().train.tensorboard;
  log.open(request.folder / kMetrics, events ? request.folder / kEvents : std::filesystem::path(),
           step, epochs);
}

Json summary(const RunRequest& request, Experiment& experiment, const TrainResult& result,
             const Metrics& final, double seconds) {
  Json json{{"name", experiment.recipe().name},
            {"device", device_name(device_of(experiment.model()))},
            {"seed", experiment.recipe().seed},
            {"epochs", experiment.recipe().train.trainer.epochs},
            {"steps", result.step},
            {"seconds", seconds},
            {"final", to_json(final)},
            {"best", nullptr}};
  if (result.best) {
    json["best"] = {{"epoch", result.best->epoch + 1}};
    json["best"].update(to_json(result.best->metrics));
  }
  if (device_of(experiment.model()).kind == Device::Kind::kCuda) {
    json["recorded_steps"] = result.recorded_steps;
    if (!result.not_recorded.empty()) json["not_recorded"] = result.not_recorded;
  }
  json["checkpoint_sha256"] = sha256_of_file(request.folder / kLast);
  return json;
}

void write_summary(const RunRequest& request, const Json& json) {
  write_text(request.folder / kSummary, json.dump(2) + "\n");
}

void require_same_recipe(const std::string& what, YamlNode of_run, const YamlNode& given) {
  take_more_epochs(of_run, given);
  const auto differences = recipe_differences(of_run, given);
  if (differences.empty()) return;
  throw InputError(what + ": differs from the recipe given: " + to_string(differences, "given") +
                   ": resume with the recipe of the run (train.epochs may only grow)");
}

void require_same_data(const RunRequest& request, const Experiment& experiment,
                       const RunRecord& record) {
  const std::string last = printable((request.folder / kLast).string());
  if (record.input != experiment.input()) {
    throw InputError(last + ": was trained on " + to_string(record.input) + ", the dataset has " +
                     to_string(experiment.input()));
  }
  if (record.data_digest == experiment.data_digest()) return;
  const std::string found = "the training data is not what the run was trained on so far (sha256 " +
                            record.data_digest + ", now " + experiment.data_digest() + ")";
  if (!request.other_data) {
    throw InputError(last + ": " + found +
                     ": restore it, or pass --other-data to go on with what is there");
  }
  request.note(found + "; inputs are normalized as before");
}

// The teacher is loaded again when a run goes on; another one would be taken for it.
void require_same_sources(const std::filesystem::path& last, const RunRecord& of_run,
                          const RunRecord& now) {
  for (const auto& [key, digest] : now.sources) {
    const auto before = of_run.sources.find(key);
    if (before == of_run.sources.end() || before->second == digest) continue;
    throw InputError(printable(last.string()) + ": " + key +
                     " is not the checkpoint that the run was trained with so far (sha256 " +
                     before->second + ", now " + digest + "): restore it");
  }
}

// A run goes on with its own recipe, on its own data.
void require_same_run(const RunRequest& request, const Experiment& experiment,
                      const Registries& registries) {
  const std::filesystem::path path = request.folder / kRecipe;
  const std::filesystem::path last = request.folder / kLast;
  const Recipe of_run = recipe_of_run(request.folder, registries.models);
  const Recipe& given = experiment.recipe();
  require_same_recipe(path.string(), lasting_recipe(of_run), lasting_recipe(given));
  const auto record = record_in(load_checkpoint_metadata(last), last.string(), registries.models);
  if (record) {
    require_same_recipe(last.string(), record->recipe, essential_recipe(given));
    require_same_data(request, experiment, *record);
    require_same_sources(last, *record, experiment.record());
  }
  const auto without_device = [](YamlNode recipe) {
    remove_entry(recipe, "device");
    return recipe;
  };
  if (without_device(of_run.resolved) == without_device(given.resolved)) return;
  write_text(path, resolved_yaml(given));
}

// Of which epoch a file is the best, counted from 0; nothing where there is no such file.
std::optional<std::int64_t> epoch_of_best(const std::filesystem::path& path) {
  if (!path_exists(path)) return std::nullopt;
  const TensorFileMetadata metadata = load_checkpoint_metadata(path);
  const auto epoch = metadata.find("best_epoch");
  return epoch == metadata.end() ? std::nullopt : parse_integer(epoch->second);
}

// A best epoch without its weights would stay the best for ever. A file of a later epoch was saved
// just before the run was killed, or the run was set back: it comes to that epoch again.
void require_best(const RunRequest& request, Trainer& trainer) {
  if (!trainer.best()) return;
  const std::filesystem::path path = request.folder / kBest;
  const std::int64_t expected = trainer.best()->epoch;
  const std::optional<std::int64_t> found = epoch_of_best(path);
  if (found && *found >= expected) return;
  const std::string epoch = std::to_string(expected + 1);
  const std::string lost =
      path.string() + (found ? ": is of epoch " + std::to_string(*found + 1) : ": is missing") +
      ", the best epoch so far was " + epoch;
  if (trainer.at_epoch_end() && trainer.epochs_done() == expected + 1) {
    std::filesystem::copy_file(request.folder / kLast, path,
                               std::filesystem::copy_options::overwrite_existing);
    request.note(lost + ": written again, " + kLast + " is of that epoch");
    return;
  }
  if (!request.forget_best) {
    throw InputError(lost +
                     ": restore the file, or pass --forget-best to choose the best among the "
                     "epochs that are left");
  }
  trainer.forget_best();
  request.note(lost + ": forgotten, the best is chosen among the epochs that are left");
}

Metrics tested(Experiment& experiment, const Trainer& trainer) {
  const Metrics metrics = experiment.evaluate_test();
  trainer.require_loss("test loss", metrics.loss);
  return metrics;
}

// What decides what a checkpoint's tensors compute.
bool decides_on_the_model(const std::string& key) {
  return key.starts_with("model") || key.starts_with("quantize") || key == "export.profile" ||
         key == "export.reduce_range";
}

// Throws InputError where the recipe in the folder would make another model of the checkpoint than
// was trained. A file from elsewhere may be of another training.
void require_trained_by(const std::filesystem::path& folder, const Recipe& recipe,
                        const std::filesystem::path& checkpoint, RunRecord record) {
  const YamlNode in_folder = essential_recipe(recipe);
  take_more_epochs(record.recipe, in_folder);  // the run goes on to more
  auto differences = recipe_differences(in_folder, record.recipe);
  std::error_code error;
  if (!std::filesystem::equivalent(std::filesystem::absolute(checkpoint).parent_path(), folder,
                                   error)) {
    std::erase_if(differences, [](const auto& d) { return !decides_on_the_model(d.key); });
  }
  if (differences.empty()) return;
  throw InputError(printable((folder / kRecipe).string()) + ": is not the recipe that " +
                   printable(checkpoint.filename().string()) +
                   " was trained with: " + to_string(differences, "trained with"));
}

// Runs `f`, and writes down a divergence that ends it.
template <typename F>
auto with_divergence_logged(MetricsLog& log, const F& f) {
  try {
    return f();
  } catch (const TrainingDiverged& error) {
    log.diverged(error.what());
    throw;
  }
}

// Whether a run that lost its last checkpoint has something that only its owner may remove.
bool has_results(const std::filesystem::path& folder) {
  if (path_exists(folder / kSummary)) return true;
  // Those of a first epoch may be of a run that was killed before it saved its last checkpoint.
  try {
    if (epoch_of_best(folder / kBest).value_or(0) > 0) return true;
  } catch (const InputError&) {  // of no use to anybody
  }
  const std::filesystem::path metrics = folder / kMetrics;
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

bool has_checkpoint(const std::filesystem::path& folder) { return path_exists(folder / kLast); }

RunLock open_run(const RunRequest& request, const Experiment& experiment,
                 const Registries& registries) {
  create_folders(request.folder);
  RunLock lock(request.folder);
  const std::filesystem::path recipe_path = request.folder / kRecipe;
  if (has_checkpoint(request.folder)) {
    if (!request.resume) {
      throw InputError(
          request.folder.string() +
          ": holds a run already: train continues it with --resume, or pass another --run-dir");
    }
    require_same_run(request, experiment, registries);
    return lock;
  }
  const std::string resolved = resolved_yaml(experiment.recipe());
  std::error_code error;
  if (std::filesystem::equivalent(request.recipe, recipe_path, error) &&
      read_file(recipe_path, kMaxRecipeBytes) != resolved) {
    throw InputError(
        printable(recipe_path.string()) +
        ": is the recipe itself, which the run would replace by the resolved one: pass "
        "another --run-dir");
  }
  if (has_results(request.folder)) {
    throw InputError(request.folder.string() + ": holds the results of a run but no " + kLast +
                     ": copy one of its checkpoints there, or pass another --run-dir");
  }
  // What a run left that was killed before its first checkpoint would be taken for this one's.
  for (const char* stale : {kBest, kMetrics, kEvents, kPlan}) {
    std::filesystem::remove(request.folder / stale, error);
    if (error) throw InputError((request.folder / stale).string() + ": " + error.message());
  }
  if (experiment.plan()) write_text(request.folder / kPlan, qat::to_string(*experiment.plan()));
  write_text(recipe_path, resolved);
  return lock;
}

RunSummary train_run(const RunRequest& request, Experiment& experiment,
                     const std::vector<TrainerCallback*>& watchers, const std::atomic<bool>& stop) {
  const std::filesystem::path last = request.folder / kLast;
  std::optional<Checkpoint> checkpoint;
  if (has_checkpoint(request.folder)) checkpoint = load_checkpoint(last);
  if (checkpoint) {
    const auto normalization = normalization_in(checkpoint->metadata, last.string());
    if (normalization) experiment.normalize_as(*normalization);
  }
  experiment.move_to(resolve_device(experiment.recipe().device));
  const auto optimizer = experiment.make_optimizer();
  const auto schedule = experiment.make_schedule();
  const auto oscillations = experiment.make_oscillations();
  const auto reestimation = experiment.make_reestimation();
  TrainerOptions options = experiment.trainer_options();
  options.run_dir = request.folder;
  RunRecord record = experiment.record();
  bool other_data = false;
  if (checkpoint) {
    record.sources.merge(sources_in(checkpoint->metadata, last.string()));
    const auto before = data_digest_in(checkpoint->metadata, last.string());
    other_data = before && *before != record.data_digest;
  }
  add_record(record, options.metadata);
  if (experiment.recipe().train.trainer.distillation && !options.distillation) {
    throw std::logic_error("[train_run] the teacher was not loaded");
  }

  MetricsLog log;
  std::vector<TrainerCallback*> callbacks;
  if (schedule) callbacks.push_back(schedule.get());  // first: it may refuse the step
  if (oscillations) callbacks.push_back(oscillations.get());
  if (reestimation) callbacks.push_back(reestimation.get());
  callbacks.push_back(&log);
  callbacks.insert(callbacks.end(), watchers.begin(), watchers.end());
  Trainer trainer(experiment.model(), *optimizer, experiment.train(), experiment.validation(),
                  experiment.loader_options(), options, callbacks);
  const bool resumed = checkpoint.has_value();
  if (resumed) {
    qat::upgrade_checkpoint(experiment.model(), *checkpoint);
    qat::require_quantizer_state(experiment.model(), *checkpoint, last.string());
    trainer.restore(*checkpoint, last.string());
    checkpoint.reset();
    require_best(request, trainer);
    if (trainer.best() && other_data) {
      trainer.forget_best();
      request.note("the best epoch so far was chosen on other data: forgotten");
    }
  }
  // Of a calibration, or of the epochs that an older checkpoint repeats.
  if (trainer.epochs_done() < options.epochs) {
    std::filesystem::remove(request.folder / kSummary);
  }
  open_log(log, request, experiment, trainer.step(), trainer.epochs_done());
  return with_divergence_logged(log, [&]() -> RunSummary {
    if (const auto& batches = experiment.recipe().calibrate_batches; batches && !resumed) {
      experiment.calibrate(*batches);
    }
    const TrainResult result = trainer.run(stop);
    if (result.interrupted) return {.interrupted = true, .final = {}};

    const Metrics final = tested(experiment, trainer);
    log.final_test(result.step, final);
    write_summary(request, summary(request, experiment, result, final, log.seconds()));
    experiment.move_to_cpu();
    return {.interrupted = false, .final = final};
  });
}

Metrics calibrate_run(const RunRequest& request, Experiment& experiment, std::int64_t batches) {
  MetricsLog log;
  open_log(log, request, experiment, 0, 0);
  experiment.move_to(resolve_device(experiment.recipe().device));
  return with_divergence_logged(log, [&] {
    experiment.calibrate(batches);
    const auto optimizer = experiment.make_optimizer();
    const auto oscillations = experiment.make_oscillations();
    TrainerOptions options = experiment.trainer_options();
    options.run_dir = request.folder;
    options.divergence_limit.reset();  // nothing was trained
    add_record(experiment.record(), options.metadata);
    std::vector<TrainerCallback*> callbacks;
    if (oscillations) callbacks.push_back(oscillations.get());
    Trainer trainer(experiment.model(), *optimizer, experiment.train(), experiment.validation(),
                    experiment.loader_options(), options, callbacks);
    const std::atomic<bool> stop = true;  // before the first step: only saves
    const TrainResult result = trainer.run(stop);
    const Metrics final = tested(experiment, trainer);
    log.final_test(0, final);
    Json json = summary(request, experiment, result, final, log.seconds());
    json["epochs"] = 0;
    json["calibration_batches"] = batches;
    write_summary(request, json);
    experiment.move_to_cpu();
    return final;
  });
}

Recipe recipe_of_run(const std::filesystem::path& folder, const ModelRegistry& registry) {
  const std::filesystem::path path = folder / kRecipe;
  return parse_recipe(read_file(path, kMaxRecipeBytes), path.string(), {}, registry);
}

LoadedRun load_run(const std::filesystem::path& folder, const std::string& checkpoint,
                   const Registries& registries, RunData data) {
  const bool own = checkpoint == "last" || checkpoint == "best";
  LoadedRun run;
  run.checkpoint = own ? folder / (checkpoint + ".safetensors") : std::filesystem::path(checkpoint);
  const std::string name = run.checkpoint.string();
  Recipe recipe = recipe_of_run(folder, registries.models);
  Checkpoint saved = load_checkpoint(run.checkpoint);
  if (const auto record = record_in(saved.metadata, name, registries.models)) {
    require_trained_by(folder, recipe, run.checkpoint, *record);
    run.experiment = std::make_unique<Experiment>(std::move(recipe), registries, *record, data);
    run.sources = record->sources;
    if (data == RunData::kAll && run.experiment->data_digest() != record->data_digest) {
      run.notes.push_back(name + ": the training data is not what the run was trained on");
    }
  } else {
    run.experiment =
        std::make_unique<Experiment>(std::move(recipe), registries, InitialWeights::kLater);
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
