// What a run's result says about its learning.
#pragma once

#include <string>

#include "steelyard/framework/metrics.h"
#include "steelyard/recipes/runs/experiment.h"

namespace steelyard {

// Of a model that predicts no better than one that says nothing: that it does, and what may help.
// Empty of others.
std::string warning_of_no_learning(Experiment& experiment, const Metrics& final);

}  // namespace steelyard
