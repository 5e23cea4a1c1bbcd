#include <fmt/core.h>

#include <memory>

#include "cli/progress.h"
#include "cli/recipe_arguments.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/recipes/language/yaml_edit.h"
#include "steelyard/recipes/runs/run.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard::cli {
namespace {

struct CalibrateArguments : RecipeArguments {
  std::string run_dir;
};

// What learned rounding changed.
std::string rounding_text(const std::vector<qat::LearnedRounding>& layers) {
  std::int64_t weights = 0, changed = 0;
  double ratios = 0;
  for (const qat::LearnedRounding& layer : layers) {
    weights += layer.weights;
    changed += layer.changed;
    ratios += layer.nearest_error > 0 ? layer.error / layer.nearest_error : 1;
  }
  return fmt::format(
      "learned rounding of {} layers: {} of {} weights changed, error of a layer's output {:.2f} "
      "of "
      "that of nearest codes (mean)\n",
      layers.size(), changed, weights, ratios / static_cast<double>(layers.size()));
}

// A recipe that only calibrates need not say how to train; the loss is that of the result.
Recipe recipe_to_calibrate(const CalibrateArguments& options, const Registries& registries) {
  YamlNode document = load_document(options.recipe, options.all_overrides());
  if (document.find("train") == nullptr) {
    const YamlNode* data = document.find("data");
    const YamlNode* labels = data != nullptr ? data->find("labels") : nullptr;
    const bool unlabelled = labels != nullptr && labels->text == "false";
    YamlNode train =
        parse_yaml(unlabelled ? "{epochs: 1, optimizer: {type: sgd, lr: 0.001}, loss: fidelity}"
                              : "{epochs: 1, optimizer: {type: sgd, lr: 0.001}}",
                   "calibrate");
    set_entry(document, "train", placed_at(std::move(train), "calibrate"));
  }
  return read_recipe(std::move(document), registries);
}

ExitCode calibrate(const CalibrateArguments& options, const Registries& registries) {
  Recipe recipe = recipe_to_calibrate(options, registries);
  require_calibratable(recipe);
  const std::string folder =
      options.run_dir.empty() ? "runs/" + recipe.name + "-calibrated" : options.run_dir;
  Run run(
      std::move(recipe),
      {.folder = folder,
       .tested =
           [&](const Metrics& final) {
             show(fmt::format("calibrated on {} batches of {} samples\n", run.calibration_batches(),
                              run.experiment().loader_options().batch_size));
             const auto& rounding = run.experiment().rounding();
             if (!rounding.empty()) show(rounding_text(rounding));
             print_result(run, final);
           }},
      registries);
  run.require_folder();
  show(model_text(run.experiment(), run.device()));
  print_notes(run.experiment().notes());
  if (run.experiment().recipe().reestimate_bn) {
    print_note("schedule.reestimate_bn is for training: calibrate keeps the statistics of norms");
  }
  print_exports(run.calibrate());
  return kDone;
}

}  // namespace

Verb add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateArguments>();
  CLI::App* verb = app.add_subcommand(
      "calibrate", "Quantize trained weights without training: measure ranges on a few batches");
  options->add_recipe(*verb, "calibrate.batches=64",
                      "A recipe file with quantize and trained weights (init.checkpoint or "
                      "model.onnx), or the name of a preset");
  verb->add_option("--run-dir", options->run_dir,
                   "The run's folder (default: runs/<name>-calibrated)");
  options->add_device(*verb);
  add_threads(*verb);
  return [options](const Registries& registries) { return calibrate(*options, registries); };
}

}  // namespace steelyard::cli
