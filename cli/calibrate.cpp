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

// The entry of the loss that fits the data; nothing where it is the default one.
std::string default_loss(const YamlNode* data) {
  const auto says = [&](const char* key, const char* value) {
    const YamlNode* entry = data != nullptr ? data->find(key) : nullptr;
    return entry != nullptr && entry->text == value;
  };
  if (says("dataset", "tokens")) return ", loss: token_cross_entropy";
  return says("labels", "false") ? ", loss: fidelity" : "";
}

// What the ranges come from.
std::string calibration_text(Run& run) {
  const Experiment& experiment = run.experiment();
  if (run.calibration_batches() == 0) {
    return experiment.recipe().exports.target
               ? "nothing was measured: the scales of blocks follow from the weights\n"
               : "nothing was measured: the model is in float\n";
  }
  return fmt::format("calibrated on {} batches of {} samples\n", run.calibration_batches(),
                     experiment.loader_options().batch_size);
}

// A recipe that only calibrates need not say how to train; the loss is that of the result.
Recipe recipe_to_calibrate(const CalibrateArguments& options, const Registries& registries) {
  YamlNode document = load_document(options.recipe, options.all_overrides());
  if (document.find("train") == nullptr) {
    const std::string loss = default_loss(document.find("data"));
    YamlNode train =
        parse_yaml("{epochs: 1, optimizer: {type: sgd, lr: 0.001}" + loss + "}", "calibrate");
    set_entry(document, "train", placed_at(std::move(train), "calibrate"));
  }
  return read_recipe(std::move(document), registries);
}

ExitCode calibrate(const CalibrateArguments& options, const Registries& registries) {
  Recipe recipe = recipe_to_calibrate(options, registries);
  require_calibratable(recipe);
  const std::string folder =
      options.run_dir.empty() ? "runs/" + recipe.name + "-calibrated" : options.run_dir;
  Run run(std::move(recipe),
          {.folder = folder,
           .note = print_note,
           .tested =
               [&](const Metrics& final) {
                 show(calibration_text(run));
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
      "calibrate",
      "Quantize trained weights without training: measure ranges on a few batches, or take the "
      "blocks of a GGUF target");
  verb->footer("A recipe that only calibrates needs no `train` section.");
  options->add_recipe(*verb, "calibrate.batches=64",
                      "A recipe file with quantize and trained weights (init.checkpoint or "
                      "model.onnx) or with model.gguf, or the name of a preset");
  verb->add_option("--run-dir", options->run_dir,
                   "The run's folder (default: runs/<name>-calibrated)");
  options->add_device(*verb);
  add_threads(*verb);
  return [options](const Registries& registries) { return calibrate(*options, registries); };
}

}  // namespace steelyard::cli
