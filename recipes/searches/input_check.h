// Whether samples arrive at a network as it was trained to read them.
#pragma once

#include <optional>
#include <string>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// A line where the first batch norm of a float network gets other values than those of its
// training, by the statistics that it holds: the samples are probably scaled or normalized in
// another way. Nothing where they fit, or the network has no batch norm.
std::optional<std::string> input_warning(Experiment& experiment);

}  // namespace steelyard
