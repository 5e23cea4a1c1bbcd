#include <fmt/core.h>

#include <memory>

#include "cli/recipe_arguments.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/experiment/experiment.h"
#include "steelyard/recipes/schema/recipe_options.h"

namespace steelyard::cli {
namespace {

struct ValidateArguments : RecipeArguments {
  bool print_resolved = false;
};

ExitCode validate(const ValidateArguments& options, const Registries& registries) {
  Recipe recipe = load_recipe(options.recipe, options.all_overrides(), registries);
  if (options.print_resolved) fmt::print("{}", resolved_yaml(recipe));
  Experiment experiment(std::move(recipe), registries, InitialWeights::kRecipe);
  require_exportable(experiment, registries);
  experiment.require_new_run();
  experiment.load_teacher(registries);
  experiment.make_optimizer();
  experiment.make_schedule();
  experiment.make_oscillations();
  experiment.make_reestimation();
  // Last, so that a machine without the device checks everything else.
  experiment.require_trainable_on(resolve_device(experiment.recipe().device));
  print_notes(experiment.notes());
  if (!options.print_resolved) fmt::print("{}: valid\n", shown(options.recipe));
  return kDone;
}

}  // namespace

Verb add_validate(CLI::App& app) {
  auto options = std::make_shared<ValidateArguments>();
  CLI::App* verb = app.add_subcommand(
      "validate", "Check recipe, dataset, model, targets, checkpoints and device without training");
  options->add_recipe(*verb, "train.epochs=3");
  options->add_device(*verb);
  verb->add_flag("--resolved", options->print_resolved, "Print the recipe with its defaults");
  return [options](const Registries& registries) { return validate(*options, registries); };
}

Verb add_schema(CLI::App& app) {
  app.add_subcommand("schema", "Print the JSON schema of recipes");
  return [](const Registries& registries) {
    fmt::print("{}\n", recipe_schema(registries));
    return kDone;
  };
}

}  // namespace steelyard::cli
