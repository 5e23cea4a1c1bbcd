// What a run's result says about its learning.
#pragma once

#include <string>

#include "steelyard/framework/train/metrics.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {

// Says that a model predicts no better than one that says nothing, or gives every sample one class,
// and what may help a model that was trained, or only calibrated. Empty for other models.
std::string warning_of_no_learning(Experiment& experiment, const Metrics& final, bool trained);

}  // namespace steelyard
