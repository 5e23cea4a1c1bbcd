// The result of `steelyard profile` as text, as JSON and as a picture.
#pragma once

#include <filesystem>
#include <string>

#include "steelyard/recipes/runs/records/step_timing.h"

namespace steelyard {

// How much of their time steps waited, and why where that is 5 % or more.
std::string to_string(const BatchWait& wait);

// A table of layers for a terminal.
std::string to_string(const StepTiming& timing);

std::string to_json_text(const StepTiming& timing);
// Throws InputError, naming the file, for what to_json_text() cannot have written.
StepTiming load_step_timing(const std::filesystem::path& file);

// SVG: a bar for each layer, the slowest first, of the kinds of its work.
std::string step_bars(const StepTiming& timing);

}  // namespace steelyard
