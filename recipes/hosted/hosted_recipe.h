// The recipe of a network in somebody else's training loop.
#pragma once

#include <string>
#include <string_view>

#include "steelyard/recipes/schema/recipe.h"

namespace steelyard {

// A recipe of `version`, `name`, `seed`, `quantize`, `schedule` and `export` alone: data, model and
// training are the host's, which tells the epochs of the schedule. Throws InputError of one line,
// as parse_recipe() does, also for keys that ask for what only the trainer does.
Recipe parse_hosted_recipe(std::string_view text, const std::string& source,
                           const Registries& registries = builtin_registries());

}  // namespace steelyard
