// What users say of an ONNX file, in `model` of a recipe and as options of the command line.
#pragma once

#include <string>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"
#include "steelyard/recipes/language/yaml_document.h"

namespace steelyard {

struct OnnxChoices {
  std::vector<std::string> outputs = {};     // those that are kept, or values inside; none: all
  std::vector<std::string> batch_axes = {};  // of inputs: "state=1", or "1" of the only one
  std::vector<std::string> freeze = {};      // inputs that become constants: "sr=16000"

  bool any() const { return !outputs.empty() || !batch_axes.empty() || !freeze.empty(); }
};

// Freezes inputs, chooses the outputs and says where batches are. Throws InputError; `batch_axis`
// is what a message calls that choice.
void choose(imports::OnnxModel& model, const OnnxChoices& choices, const std::string& batch_axis);

// Adds them to the table `model` of a recipe.
void add_choices(YamlNode& table, const OnnxChoices& choices);

}  // namespace steelyard
