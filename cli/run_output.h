// What every verb that makes a run prints.
#pragma once

#include <filesystem>

#include "recipes/experiment.h"

namespace steelyard::cli {

// The data, the model's size, the device that trains and what is quantized.
void print_model(Experiment& experiment, Device device);

// The result on the test set; then the exports that the recipe asks for are written and named.
void finish_run(const std::filesystem::path& folder, Experiment& experiment, const Metrics& final);

}  // namespace steelyard::cli
