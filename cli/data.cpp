#include <fmt/core.h>

#include <memory>

#include "cli/recipe_arguments.h"
#include "cli/run_output.h"
#include "cli/usage.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/reports/contact_sheet.h"
#include "steelyard/recipes/reports/data_report.h"
#include "steelyard/recipes/runs/data_notes.h"
#include "steelyard/recipes/runs/recipe_data.h"

namespace steelyard::cli {
namespace {

struct DataArguments : RecipeArguments {
  std::string sheet;
};

ExitCode show_data(const DataArguments& options, const Registries& registries) {
  if (!options.sheet.empty() && !options.sheet.ends_with(".png")) {
    throw InputError("--sheet: expected a name that ends in .png, got '" +
                     printable(options.sheet) + "'");
  }
  if (!options.sheet.empty()) require_writable("--sheet", options.sheet);
  const Recipe recipe = load_recipe(options.recipe, options.overrides, registries);
  const DatasetSplits splits = load_splits(recipe, registries.datasets);
  print_notes(notes_of_samples(splits.train, /*layout=*/!recipe.model.file()));
  print_notes(splits.notes);
  const DataReport described = describe_data(splits);
  if (const auto note = note_of_constant(described.splits.train, described.statistics)) {
    print_note(*note);
  }
  fmt::print("{}",
             to_string(described, recipe.data.validation_samples(described.splits.train.size())));
  if (!options.sheet.empty()) {
    const Dataset& train = described.splits.train;
    validate_options(train, recipe.data.loader);
    write_file_atomic(options.sheet, encode_png(contact_sheet(train, recipe.data.loader)));
    fmt::print("contact sheet: {}\n", shown(options.sheet));
  }
  if (described.faults.empty()) return kDone;
  return report("failed",
                fmt::format("{} sample{} cannot be read, as listed above", described.faults.size(),
                            described.faults.size() == 1 ? "" : "s"),
                kFailed);
}

}  // namespace

Verb add_data(CLI::App& app) {
  auto options = std::make_shared<DataArguments>();
  CLI::App* verb = app.add_subcommand(
      "data", "Describe a recipe's data: classes, sizes, mean and standard deviation, duplicates");
  options->add_recipe(*verb, "data.path=flowers");
  verb->add_option("--sheet", options->sheet,
                   "A PNG file to write: images of each class, below them what transforms make of "
                   "them, and below "
                   "those what augmentation does");
  add_threads(*verb);
  return [options](const Registries& registries) { return show_data(*options, registries); };
}

}  // namespace steelyard::cli
