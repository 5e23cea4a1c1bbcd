// Whether samples arrive at a network as it was trained to read them.
#pragma once

#include <string>
#include <vector>

#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// A line each where samples are equal or each of one value, so that ranges are too small for
// others, and where the first batch norm of a float network gets other values than those of its
// training, by the statistics that it holds: the samples are probably scaled or normalized in
// another way.
std::vector<std::string> input_warnings(Experiment& experiment);

}  // namespace steelyard
