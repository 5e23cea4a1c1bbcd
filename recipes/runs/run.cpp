#include "steelyard/recipes/runs/run.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/qat/model/old_checkpoint.h"
#include "steelyard/qat/model/saved_state.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/learning_warning.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/runs/records/continued.h"
#include "steelyard/recipes/runs/records/metrics_log.h"

namespace steelyard {
namespace {

using Json = nlohmann::ordered_json;

void open_log(MetricsLog& log, const RunOptions& options, const Experiment& experiment,
              std::int64_t step, std::int64_t epochs) {
  const bool events = experiment.recipe().train.tensorboard;
  log.open(options.folder / run_files::kMetrics,
           events ? options.folder / run_files::kEvents : std::filesystem::path(), step, epochs);
}

Json summary(const RunOptions& options, Experiment& experiment, const TrainResult& result,
             const Metrics& final, double seconds, std::int64_t memory_bytes) {
  Json json{{"name", experiment.recipe().name},
            {"device", device_name(device_of(experiment.model()))},
            {"seed", experiment.recipe().seed},
            {"epochs", experiment.recipe().train.trainer.epochs},
            {"steps", result.step},
            {"seconds", seconds},
            {"memory_bytes", memory_bytes},
            {"final", to_json(final)},
            {"best", nullptr}};
  if (result.best) {
    json["best"] = {{"epoch", result.best->epoch + 1}};
    json["best"].update(to_json(result.best->metrics));
  }
  if (device_of(experiment.model()).kind == Device::Kind::kCuda) {
    json["captured_steps"] = result.captured_steps;
    if (!result.not_captured.empty()) json["not_captured"] = result.not_captured;
  }
  json["checkpoint_sha256"] = sha256_of_file(options.folder / run_files::kLast);
  return json;
}

void write_summary(const RunOptions& options, const Json& json) {
  write_file_atomic(options.folder / run_files::kSummary, printable_json(json.dump(2)) + "\n");
}

// Whether the best epoch so far must be forgotten, because its weights are lost. A file of a later
// epoch is fine if the run has the same recipe: it was saved just before the run was killed, or the
// run was set back, and the run reaches that epoch again.
bool loses_best(const RunOptions& options, const Experiment& experiment,
                const Registries& registries, const Trainer& trainer) {
  if (!trainer.best()) return false;
  const std::filesystem::path path = options.folder / run_files::kBest;
  const std::int64_t expected = trainer.best()->epoch;
  const std::optional<std::int64_t> found = epoch_of_best(path);
  if (found && *found == expected) return false;
  std::string what = ": is missing";
  if (found) {
    what = ": is of epoch " + std::to_string(*found + 1);
    const std::string other = difference_from_recipe(path, experiment.recipe(), registries);
    if (*found > expected && other.empty()) return false;
    if (*found > expected) what += " with another " + other;
  }
  const std::string epoch = std::to_string(expected + 1);
  const std::string lost = path.string() + what + ", the best epoch so far was " + epoch;
  if (trainer.at_epoch_end() && trainer.epochs_done() == expected + 1) {
    std::filesystem::copy_file(options.folder / run_files::kLast, path,
                               std::filesystem::copy_options::overwrite_existing);
    options.note(lost + ": written again, " + run_files::kLast + " is of that epoch");
    return false;
  }
  if (!options.forget_best) {
    throw InputError(lost +
                     ": restore the file, or pass --forget-best to choose the best among the "
                     "epochs that are left");
  }
  options.note(lost + ": forgotten, the best is chosen among the epochs that are left");
  return true;
}

Metrics tested(Experiment& experiment, const Trainer& trainer, comm::Communicator& ranks) {
  const Metrics metrics = experiment.evaluate_test(ranks);
  trainer.require_loss("test loss", metrics.loss, experiment.test());
  return metrics;
}

// Runs `f`, and writes down a divergence that ends it.
template <typename F>
auto with_divergence_logged(MetricsLog& log, bool writes, const F& f) {
  try {
    return f();
  } catch (const TrainingDiverged& error) {
    if (writes) log.diverged(error.what());
    throw;
  }
}

// Adds the sources of a run that goes on; returns whether it began with other data.
bool add_earlier(RunRecord& record, const Checkpoint& checkpoint, const std::string& file) {
  record.sources.merge(sources_in(checkpoint.metadata, file));
  const auto before = data_digest_in(checkpoint.metadata, file);
  return before && *before != record.data_digest;
}

std::vector<TrainerCallback*> those_there(std::initializer_list<TrainerCallback*> callbacks) {
  std::vector<TrainerCallback*> there = callbacks;
  std::erase(there, nullptr);
  return there;
}

RunOptions in_folder(RunOptions options, const Recipe& recipe) {
  if (options.folder.empty()) options.folder = std::filesystem::path("runs") / recipe.name;
  return options;
}

}  // namespace

void require_calibratable(const Recipe& recipe) {
  const std::string& place = recipe.resolved.place;
  // A language model has blocks, or is tested in float.
  if (!recipe.quantize && !recipe.model.is_language_model()) {
    throw InputError(place + ": calibrate needs 'quantize'");
  }
  if (!recipe.init_checkpoint && !recipe.model.file()) {
    throw InputError(
        place +
        ": calibrate needs the trained weights of 'init.checkpoint', 'model.onnx', 'model.gguf' or "
        "'model.huggingface'");
  }
}

Run::Run(const std::string& recipe, RunOptions options, const Registries& registries)
    : Run(
          load_recipe(recipe, options.overrides, registries),
          [&] {
            options.recipe_file = recipe;
            return options;
          }(),
          registries) {}

Run::Run(Recipe recipe, RunOptions options, const Registries& registries)
    : options_(in_folder(std::move(options), recipe)),
      registries_(registries),
      device_(resolve_device(recipe.device)),  // before anything takes long
      continues_(options_.resume && has_checkpoint(options_.folder)),
      experiment_(continues_ ? continued(std::move(recipe), registries_, options_.folder)
                             : Experiment(std::move(recipe), registries_, InitialWeights::kRecipe,
                                          {}, options_.known)) {
  experiment_.require_trainable_on(device_);
  if (!continues_) experiment_.require_new_run();
  require_exportable(experiment_, registries_);
  note_exportability(experiment_, registries_);
}

std::optional<std::int64_t> Run::resumes_at() const {
  if (!continues_) return std::nullopt;
  return step_of_checkpoint(options_.folder / run_files::kLast);
}

std::int64_t Run::memory_bytes() const {
  const AllocatorStats stats = allocator_stats(device_);
  return std::max(stats.peak_bytes, stats.in_use_bytes + stats.cached_bytes);
}

void Run::load_teacher() {
  if (!std::exchange(teacher_loaded_, true)) experiment_.load_teacher(registries_);
}

RunResult Run::train(const std::atomic<bool>& stop, const std::vector<TrainerCallback*>& watchers) {
  load_teacher();
  std::optional<RunLock> lock;
  on_first_rank(*ranks_, [&] { lock.emplace(open_run(options_, experiment_, registries_)); });
  const std::optional<Metrics> final = train_in_folder(stop, watchers);
  if (!final) return {.interrupted = true};
  return finished(*final);
}

void Run::restore(Trainer& trainer, Checkpoint& checkpoint) {
  const std::string last = (options_.folder / run_files::kLast).string();
  qat::upgrade_checkpoint(experiment_.model(), checkpoint);
  qat::require_quantizer_state(experiment_.model(), checkpoint, last);
  trainer.restore(checkpoint, last);
}

RunResult Run::train() {
  const std::atomic<bool> never = false;
  return train(never);
}

std::optional<Checkpoint> Run::last_checkpoint() {
  const std::filesystem::path last = options_.folder / run_files::kLast;
  std::optional<Checkpoint> checkpoint;
  on_first_rank(*ranks_, [&] {
    if (has_checkpoint(options_.folder)) checkpoint = load_checkpoint(last);
  });
  broadcast(checkpoint, *ranks_);
  if (checkpoint) {
    const auto normalization = normalization_in(checkpoint->metadata, last.string());
    if (normalization) experiment_.normalize_as(*normalization);
  }
  return checkpoint;
}

void Run::resume(Trainer& trainer, Checkpoint checkpoint, bool other_data) {
  on_all_ranks(*ranks_, [&] { restore(trainer, checkpoint); });
  bool loses = false;
  on_first_rank(*ranks_, [&] { loses = loses_best(options_, experiment_, registries_, trainer); });
  if (!ranks_->broadcast(loses ? std::string("yes") : std::string()).empty()) {
    trainer.forget_best();
  }
  if (trainer.best() && other_data) {
    trainer.forget_best();
    options_.note("the best epoch so far was chosen on other data: forgotten");
  }
}

std::optional<Metrics> Run::train_in_folder(const std::atomic<bool>& stop,
                                            const std::vector<TrainerCallback*>& watchers) {
  on_all_ranks(*ranks_, [&] { require_finite_samples(experiment_.test()); });
  std::optional<Checkpoint> checkpoint = last_checkpoint();
  experiment_.move_to(device_);
  const auto optimizer = experiment_.make_optimizer();
  const auto schedule = experiment_.make_schedule();
  const auto oscillations = experiment_.make_oscillations();
  const auto reestimation = experiment_.make_reestimation();
  TrainerOptions options = trainer_options();
  RunRecord record = experiment_.record();
  const bool other_data =
      checkpoint && add_earlier(record, *checkpoint, (options_.folder / run_files::kLast).string());
  add_record(record, options.metadata);

  MetricsLog log;
  // The schedule first: it may refuse the step.
  std::vector<TrainerCallback*> callbacks = those_there(
      {schedule.get(), oscillations.get(), reestimation.get(), first_rank() ? &log : nullptr});
  callbacks.insert(callbacks.end(), watchers.begin(), watchers.end());
  Trainer trainer(experiment_.model(), *optimizer, experiment_.train(), experiment_.validation(),
                  experiment_.loader_options(), options, callbacks);
  const bool resumed = checkpoint.has_value();
  if (resumed) resume(trainer, *std::exchange(checkpoint, std::nullopt), other_data);
  on_first_rank(*ranks_, [&] {
    if (resumed) store_changed_recipe(options_.folder, experiment_.recipe(), registries_);
    // Removes the summary of a calibration, or of epochs that an older checkpoint repeats.
    if (trainer.epochs_done() < options.epochs) {
      std::filesystem::remove(options_.folder / run_files::kSummary);
    }
    open_log(log, options_, experiment_, trainer.step(), trainer.epochs_done());
  });
  if (trainer.epochs_done() >= options.epochs) {
    options_.note("the run is finished already (train.epochs: " + std::to_string(options.epochs) +
                  ")");
  }
  return with_divergence_logged(log, first_rank(), [&]() -> std::optional<Metrics> {
    const TrainResult result = experiment_.with_samples_named([&] {
      if (const auto& batches = experiment_.recipe().calibrate_batches; batches && !resumed) {
        experiment_.calibrate(*batches);
      }
      return trainer.run(stop);
    });
    if (result.interrupted) return std::nullopt;

    const Metrics final = tested(experiment_, trainer, *ranks_);
    if (first_rank()) {
      log.final_test(result.step, final);
      Json json = summary(options_, experiment_, result, final, log.seconds(), memory_bytes());
      if (const std::string warning = warning_of_no_learning(experiment_, final, true);
          !warning.empty()) {
        options_.note(warning);
        json["warning"] = warning;
      }
      write_summary(options_, json);
    }
    experiment_.move_to_cpu();
    return final;
  });
}

StepTiming Run::time_steps(std::int64_t steps) {
  load_teacher();
  experiment_.move_to(device_);
  const auto optimizer = experiment_.make_optimizer();
  const auto schedule = experiment_.make_schedule();
  const auto oscillations = experiment_.make_oscillations();
  TrainerOptions options = experiment_.trainer_options();
  options.cuda_graph = false;  // the kernels of a captured step do not run one by one
  options.divergence_limit.reset();
  options.stops_on_collapse = false;
  std::atomic<bool> stop = false;
  StepWatch watch(experiment_.model(), device_, steps, stop);
  // The watch last: nearest to the step.
  const auto callbacks = those_there({schedule.get(), oscillations.get(), &watch});

  std::optional<Checkpoint> checkpoint;
  if (continues_) checkpoint = load_checkpoint(options_.folder / run_files::kLast);
  const std::int64_t per_epoch =
      batches_per_epoch(experiment_.train(), experiment_.loader_options());
  const std::int64_t done = checkpoint ? std::stoll(checkpoint->metadata.at("step")) : 0;
  options.epochs = std::max(options.epochs, (done + watch.all_steps() + per_epoch - 1) / per_epoch);
  Trainer trainer(experiment_.model(), *optimizer, experiment_.train(), Dataset{},
                  experiment_.loader_options(), options, callbacks);
  if (checkpoint) {
    restore(trainer, *checkpoint);
  } else if (const auto& batches = experiment_.recipe().calibrate_batches) {
    experiment_.calibrate(*batches);
  }
  trainer.run(stop);
  StepTiming timing = watch.timing(trainer.loader_seconds());
  timing.run = experiment_.recipe().name;
  timing.threads = kernels::num_threads();
  timing.batch_size = experiment_.loader_options().batch_size;
  experiment_.move_to_cpu();
  return timing;
}

RunResult Run::calibrate() {
  require_calibratable(experiment_.recipe());
  const RunLock lock = open_run(options_, experiment_, registries_);
  return finished(save_before_training(calibration_batches()));
}

RunResult Run::save_untrained() {
  const RunLock lock = open_run(options_, experiment_, registries_);
  return finished(save_before_training(0));
}

std::int64_t Run::calibration_batches() const {
  const Recipe& recipe = experiment_.recipe();
  if (recipe.exports.target || !recipe.quantize) return 0;  // scales follow from the weights
  const auto& batches = recipe.calibrate_batches;
  return batches ? *batches : experiment_.default_calibration_batches();
}

Metrics Run::save_before_training(std::int64_t batches_of_ranges) {
  MetricsLog log;
  open_log(log, options_, experiment_, 0, 0);
  experiment_.move_to(device_);
  return with_divergence_logged(log, first_rank(), [&] {
    if (batches_of_ranges > 0) experiment_.calibrate(batches_of_ranges);
    const auto optimizer = experiment_.make_optimizer();
    const auto oscillations = experiment_.make_oscillations();
    TrainerOptions options = trainer_options();
    options.divergence_limit.reset();                    // nothing was trained
    if (options.average) options.average->refresh = {};  // nor averaged: ranges are those tested
    add_record(experiment_.record(), options.metadata);
    Trainer trainer(experiment_.model(), *optimizer, experiment_.train(), experiment_.validation(),
                    experiment_.loader_options(), options, those_there({oscillations.get()}));
    // First: a model that cannot be evaluated leaves no checkpoint, and its folder may be used
    // again.
    const Metrics final = tested(experiment_, trainer, *ranks_);
    const std::atomic<bool> stop = true;  // before the first step: only saves
    const TrainResult result = trainer.run(stop);
    log.final_test(0, final);
    Json json = summary(options_, experiment_, result, final, log.seconds(), memory_bytes());
    json["epochs"] = 0;
    if (batches_of_ranges > 0) {
      json["calibration_batches"] = batches_of_ranges;
      const std::string warning = warning_of_no_learning(experiment_, final, false);
      if (first_rank() && !warning.empty()) {
        options_.note(warning);
        json["warning"] = warning;
      }
    }
    for (const qat::LearnedRounding& layer : experiment_.rounding()) {
      json["adaround"].push_back({{"layer", layer.layer},
                                  {"weights", layer.weights},
                                  {"changed", layer.changed},
                                  {"nearest_error", layer.nearest_error},
                                  {"error", layer.error}});
    }
    write_summary(options_, json);
    experiment_.move_to_cpu();
    return final;
  });
}

TrainerOptions Run::trainer_options() const {
  TrainerOptions options = experiment_.trainer_options();
  options.run_dir = options_.folder;
  options.ranks = ranks_;
  return options;
}

RunResult Run::finished(const Metrics& final) {
  RunResult result{.final = final};
  if (!first_rank()) return result;
  options_.tested(final);
  const std::vector<std::string>& formats = experiment_.recipe().exports.formats;
  if (formats.empty()) return result;
  deploy::Graph graph = deployed_graph(experiment_);
  graph.model_sha256 = model_digest(options_.folder / run_files::kLast);
  const ExportSpec& exports = experiment_.recipe().exports;
  const deploy::ExportOptions how{.onnx = {.profile = exports.profile}, .stream = exports.stream};
  result.exports = write_exports(graph, formats, options_.folder / "export", how);
  if (auto note = note_of_fixed_sizes(graph, formats, how.onnx)) {
    result.notes.push_back(std::move(*note));
  }
  return result;
}

}  // namespace steelyard
