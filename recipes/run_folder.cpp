#include "recipes/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/error.h"
#include "framework/files.h"
#include "framework/folders.h"
#include "framework/sha256.h"
#include "qat/old_checkpoint.h"
#include "recipes/derived_recipe.h"
#include "recipes/metrics_log.h"

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
            {"epochs", experiment.recipe().train.epochs},
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

// A recipe as it is compared: a run may go on on another device, and its file may be of a version
// that wrote the same values otherwise.
YamlNode comparable(YamlNode recipe, const std::string& source) {
  remove_entry(recipe, "device");
  return parse_yaml(to_yaml(recipe), source);
}

Metrics tested(Experiment& experiment, std::int64_t step) {
  const Metrics metrics = experiment.evaluate_test();
  if (!std::isfinite(metrics.loss)) {
    throw TrainingDiverged("step " + std::to_string(step) + ": test loss is " +
                           std::to_string(metrics.loss));
  }
  return metrics;
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
  std::error_code error;
  const std::filesystem::directory_iterator files(folder, error);
  if (error) throw InputError(printable(folder.string()) + ": " + error.message());
  for (const auto& entry : files) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".safetensors")) return true;
  }
  return false;
}

std::string model_digest(std::vector<NamedTensor> tensors) {
  std::erase_if(tensors,
                [](const NamedTensor& t) { return t.name.find('/') != std::string::npos; });
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  Sha256 hash;
  for (const NamedTensor& t : tensors) {
    const Tensor& values = t.tensor;
    hash.update(t.name + " " + std::string(dtype_name(values.dtype())) + " " +
                shape_string(values.shape()) + "\n");
    hash.update(values.raw(), static_cast<std::size_t>(values.bytes()));
  }
  return hash.hex();
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

RunLock open_run(const RunRequest& request, const Experiment& experiment) {
  create_folders(request.folder);
  RunLock lock(request.folder);
  const std::filesystem::path recipe_path = request.folder / kRecipe;
  if (has_checkpoint(request.folder)) {
    if (!request.resume) {
      throw InputError(
          request.folder.string() +
          ": holds a run already: train continues it with --resume, or pass another --run-dir");
    }
    const std::string source = recipe_path.string();
    const YamlNode of_run = parse_yaml(read_file(recipe_path, kMaxRecipeBytes), source);
    if (comparable(of_run, source) != comparable(experiment.recipe().resolved, source)) {
      throw InputError(recipe_path.string() +
                       ": differs from the recipe given: resume with the recipe of the run");
    }
    return lock;
  }
  if (has_results(request.folder)) {
    throw InputError(request.folder.string() + ": holds the results of a run but no " + kLast +
                     ": copy one of its checkpoints there, or pass another --run-dir");
  }
  // What a run left that was killed before its first checkpoint would be taken for this one's.
  std::error_code error;
  for (const char* stale : {kBest, kMetrics, kEvents, kPlan}) {
    std::filesystem::remove(request.folder / stale, error);
    if (error) throw InputError((request.folder / stale).string() + ": " + error.message());
  }
  if (experiment.plan()) write_text(request.folder / kPlan, qat::to_string(*experiment.plan()));
  write_text(recipe_path, resolved_yaml(experiment.recipe()));
  return lock;
}

RunSummary train_run(const RunRequest& request, Experiment& experiment,
                     const std::vector<TrainerCallback*>& watchers, const std::atomic<bool>& stop) {
  experiment.move_to(resolve_device(experiment.recipe().device));
  const auto optimizer = experiment.make_optimizer();
  const auto schedule = experiment.make_schedule();
  const auto oscillations = experiment.make_oscillations();
  const auto reestimation = experiment.make_reestimation();
  TrainerOptions options = experiment.trainer_options();
  options.run_dir = request.folder;
  if (experiment.recipe().train.distill && !options.distillation) {
    throw std::logic_error("[train_run] the teacher was not loaded");
  }

  const std::filesystem::path last = request.folder / kLast;
  MetricsLog log;
  std::vector<TrainerCallback*> callbacks;
  if (schedule) callbacks.push_back(schedule.get());  // first: it may refuse the step
  if (oscillations) callbacks.push_back(oscillations.get());
  if (reestimation) callbacks.push_back(reestimation.get());
  callbacks.push_back(&log);
  callbacks.insert(callbacks.end(), watchers.begin(), watchers.end());
  Trainer trainer(experiment.model(), *optimizer, experiment.train(), experiment.validation(),
                  experiment.loader_options(), options, callbacks);
  const bool resumed = has_checkpoint(request.folder);
  if (resumed) trainer.restore(qat::load_checkpoint_of(experiment.model(), last), last.string());
  // Of a calibration, or of the epochs that an older checkpoint repeats.
  if (trainer.epochs_done() < options.epochs) {
    std::filesystem::remove(request.folder / kSummary);
  }
  open_log(log, request, experiment, trainer.step(), trainer.epochs_done());
  return with_divergence_logged(log, [&]() -> RunSummary {
    if (const auto& calibration = experiment.recipe().calibrate; calibration && !resumed) {
      experiment.calibrate(calibration->batches);
    }
    const TrainResult result = trainer.run(stop);
    if (result.interrupted) return {.interrupted = true, .final = {}};

    const Metrics final = tested(experiment, result.step);
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
    std::vector<TrainerCallback*> callbacks;
    if (oscillations) callbacks.push_back(oscillations.get());
    Trainer trainer(experiment.model(), *optimizer, experiment.train(), experiment.validation(),
                    experiment.loader_options(), options, callbacks);
    const std::atomic<bool> stop = true;  // before the first step: only saves
    const TrainResult result = trainer.run(stop);
    const Metrics final = tested(experiment, 0);
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
                   const Registries& registries) {
  const bool own = checkpoint == "last" || checkpoint == "best";
  LoadedRun run;
  run.checkpoint = own ? folder / (checkpoint + ".safetensors") : std::filesystem::path(checkpoint);
  run.experiment = std::make_unique<Experiment>(recipe_of_run(folder, registries.models),
                                                registries, InitialWeights::kLater);
  Module& model = run.experiment->model();
  const Checkpoint file = qat::load_checkpoint_of(model, run.checkpoint);
  load_into(model, file.tensors, run.checkpoint.string());
  run.model_sha256 = model_digest(file.tensors);
  return run;
}

std::string model_digest(const std::filesystem::path& checkpoint) {
  return model_digest(load_checkpoint(checkpoint).tensors);
}

}  // namespace steelyard
