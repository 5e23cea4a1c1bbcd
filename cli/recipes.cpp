#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "cli/verbs.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/schema/recipe.h"

namespace steelyard::cli {
namespace {

ExitCode print_recipes(const std::string& name) {
  std::size_t width = 0;
  std::vector<std::string> names;
  for (const Preset& preset : list_presets()) {
    if (preset.name == name) {
      fmt::print("{}", preset.text);
      return kDone;
    }
    width = std::max(width, preset.name.size());
    names.emplace_back(preset.name);
  }
  if (!name.empty()) {
    throw InputError("no preset " + quote_for_message(name) + did_you_mean(name, names) +
                     ": 'steelyard recipes' lists them");
  }
  for (const Preset& preset : list_presets()) {
    fmt::print("{:<{}}  {}\n", preset.name, width, preset.description);
  }
  return kDone;
}

}  // namespace

Verb add_recipes(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("recipes", "List the presets, or print one");
  verb->add_option("name", *name, "The preset to print");
  return [name](const Registries&) { return print_recipes(*name); };
}

}  // namespace steelyard::cli
