#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/recipe_arguments.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/recipes/reports/step_report.h"
#include "steelyard/recipes/runs/run.h"

namespace steelyard::cli {
namespace {

struct ProfileArguments : RecipeArguments {
  std::int64_t steps = 20;
  bool json = false;
};

// The run to time: that of a recipe or, for a folder that holds a run, its own recipe going on from
// its last checkpoint.
Run run_to_time(const ProfileArguments& options, const Registries& registries) {
  const std::vector<std::string> overrides = options.all_overrides();
  if (!is_folder(options.recipe)) {
    return Run(options.recipe, {.overrides = overrides, .note = print_note}, registries);
  }
  const std::filesystem::path folder = options.recipe;
  recipe_of_run(folder, registries);  // says what is wrong with it
  return Run((folder / run_files::kRecipe).string(),
             {.folder = folder, .overrides = overrides, .resume = true, .note = print_note},
             registries);
}

ExitCode profile(const ProfileArguments& options, const Registries& registries) {
  Run run = run_to_time(options, registries);
  print_notes(run.experiment().notes());
  const StepTiming timing = run.time_steps(options.steps);
  const std::string json = to_json_text(timing);
  fmt::print("{}", options.json ? json : to_string(timing));
  if (!is_folder(options.recipe)) return kDone;
  const std::filesystem::path file = std::filesystem::path(options.recipe) / run_files::kProfile;
  write_file_atomic(file, json);
  if (!options.json) fmt::print("\n{}: shown by `steelyard report`\n", shown(file));
  return kDone;
}

}  // namespace

Verb add_profile(CLI::App& app) {
  auto options = std::make_shared<ProfileArguments>();
  CLI::App* verb =
      app.add_subcommand("profile", "Time the steps of a training run, by layer and kind of work");
  verb->footer(
      "Nothing is saved but the times. Given a run's folder, the steps are those after its last "
      "checkpoint, and profile.json is written to the folder.");
  options->add_recipe(*verb, "data.batch_size=64",
                      "A recipe file, the name of a preset, or a run's folder");
  verb->add_option("--steps", options->steps, "Steps to average over (default: 20)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000}));
  options->add_device(*verb);
  verb->add_flag("--json", options->json, "Print JSON instead of a table");
  add_threads(*verb);
  return [options](const Registries& registries) { return profile(*options, registries); };
}

}  // namespace steelyard::cli
