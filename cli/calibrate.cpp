#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/progress.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/error.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/run_folder.h"

namespace steelyard::cli {
namespace {

constexpr std::int64_t kDefaultBatches = 32;

struct Options {
  std::string recipe;
  std::vector<std::string> overrides;
  std::string run_dir;
  std::optional<std::string> device;
  int threads = 0;
};

void require_something_to_calibrate(const Recipe& recipe) {
  const std::string& place = recipe.resolved.place;
  if (!recipe.quantize) throw InputError(place + ": calibrate needs 'quantize'");
  if (!recipe.init_checkpoint) {
    throw InputError(place + ": calibrate needs the trained weights of 'init.checkpoint'");
  }
}

ExitCode calibrate(const Options& options) {
  if (options.threads > 0) kernels::set_num_threads(options.threads);
  const Registries registries;
  std::vector<std::string> overrides = options.overrides;
  if (options.device) overrides.push_back("--device=" + *options.device);
  Recipe recipe = load_recipe(options.recipe, overrides, registries.models);
  require_something_to_calibrate(recipe);
  const Device device = resolve_device(recipe.device);  // before anything takes long
  const RunRequest request{.folder = options.run_dir.empty() ? "runs/" + recipe.name + "-calibrated"
                                                             : options.run_dir};
  Experiment experiment(std::move(recipe), registries, InitialWeights::kRecipe);
  experiment.require_trainable_on(device);
  experiment.require_norm_to_freeze();
  require_exportable(experiment, registries);
  note_exportability(experiment, registries);
  show(model_text(experiment, device));
  print_notes(experiment.notes());
  const auto& given = experiment.recipe().calibrate_batches;
  const std::int64_t available = batches_per_epoch(experiment.train(), experiment.loader_options());
  const std::int64_t batches = given ? *given : std::min(kDefaultBatches, available);

  const RunLock lock = open_run(request, experiment, registries);
  const Metrics final = calibrate_run(request, experiment, batches);
  show(fmt::format("calibrated on {} batches of {} samples\n", batches,
                   experiment.loader_options().batch_size));
  finish_run(request.folder, experiment, final);
  return kDone;
}

}  // namespace

Run add_calibrate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Quantize trained weights without training: ranges from a few batches");
  verb->add_option("recipe", options->recipe,
                   "A recipe file with init.checkpoint and quantize, or "
                   "the name of a preset")
      ->required();
  verb->add_option("--set", options->overrides, "Override one value: --set calibrate.batches=64")
      ->allow_extra_args(false);
  verb->add_option("--run-dir", options->run_dir,
                   "The run's folder (default: runs/<name>-calibrated)");
  verb->add_option("--device", options->device, "auto, cpu, cuda or cuda:N");
  add_threads(*verb, options->threads);
  return [options] { return calibrate(*options); };
}

}  // namespace steelyard::cli
