// The recipe that a command line names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/verbs.h"

namespace steelyard::cli {

// With what the command line puts in place of the recipe's values.
struct RecipeArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::optional<std::string> device;

  // `example`: of --set.
  void add_recipe(CLI::App& verb, const std::string& example,
                  const std::string& help = "A recipe file, or the name of a preset") {
    verb.add_option("recipe", recipe, help)->required();
    verb.add_option("--set", overrides, "Override one value: --set " + example)
        ->allow_extra_args(false);
  }
  void add_device(CLI::App& verb, const std::string& cuda = "cuda") {
    verb.add_option("--device", device, "The device: auto, cpu, " + cuda + " or cuda:N");
  }

  // For load_recipe().
  std::vector<std::string> all_overrides() const {
    std::vector<std::string> all = overrides;
    if (device) all.push_back("--device=" + *device);
    return all;
  }
};

}  // namespace steelyard::cli
