// How near a file of integers is to its float form where its graph was cut: by the outputs of the
// whole file, which nodes behind the cut compute.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/recipes/searches/fidelity.h"

namespace steelyard {

// For each sample the outputs of a file, in the file's order.
using WholeOutputs = std::vector<std::vector<deploy::OnnxValues>>;

// What runs the float file, and the integer part with the rest behind it.
struct WholeFile {
  std::filesystem::path in_float;
  std::vector<std::string> outputs;  // their names
  // Of the float file, or of a step's file.
  std::function<WholeOutputs(const std::filesystem::path& onnx, const Tensor& inputs,
                             const deploy::OnnxPorts& ports)>
      run = {};
};

struct WholeFidelity {
  Fidelity fidelity = {};
  // The outputs that cannot be compared, since their sizes follow from the samples or differ.
  std::vector<std::string> others = {};
};

// Compares the outputs of as many samples in f32: numbers by their SQNR, whole numbers as
// decisions.
WholeFidelity whole_fidelity(const std::vector<std::string>& names, const WholeOutputs& in_float,
                             const WholeOutputs& quantized);

}  // namespace steelyard
