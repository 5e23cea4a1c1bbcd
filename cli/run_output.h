// What every verb that makes a run prints.
#pragma once

#include <filesystem>
#include <string>

#include "steelyard/recipes/runs/run.h"

namespace steelyard::cli {

// A path as it is printed: on one line, without what a terminal would act on.
std::string shown(const std::filesystem::path& path);

// Throws InputError where the file that an option names could not be written.
void require_writable(const std::string& option, const std::filesystem::path& file);

// The data, the model's size, the device that trains and what is quantized.
std::string model_text(Experiment& experiment, Device device);

// The result on the test set, ranges that look wrong, and where the run is.
void print_result(Run& run, const Metrics& final);
// A line for each file that was exported.
void print_exports(const RunResult& result);

// A note if the input's bytes lie half-way between its codes.
void print_input_codes(Experiment& experiment);

// A line that begins with "note: ", on standard error: it is no result.
void print_note(const std::string& note);
void print_notes(const std::vector<std::string>& notes);

}  // namespace steelyard::cli
