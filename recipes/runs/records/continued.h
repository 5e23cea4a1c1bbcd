// The experiment of a run that goes on.
#pragma once

#include <filesystem>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// Of a run that has a checkpoint in the folder, with the network that this holds, and what the
// recipe does not say as the run began with it. Throws InputError.
Experiment continued(Recipe recipe, const Registries& registries,
                     const std::filesystem::path& folder);

}  // namespace steelyard
