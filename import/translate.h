// From an ONNX model to a network of our modules.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/safetensors.h"
#include "steelyard/import/graph_spec.h"
#include "steelyard/import/onnx_model.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

struct Imported {
  GraphSpec graph;
  std::vector<NamedTensor> weights;  // f32, by the modules' names: "conv1.weight"
};

// The shape of one sample that the model's input says, images as [H, W, C]. Throws InputError where
// a size is free.
Shape sample_of(const OnnxModel& model);

// Leaves the output of that name as the model's only one; "" leaves all. Throws InputError, naming
// the outputs, where there is none of that name.
void choose_output(OnnxModel& model, const std::string& name);

// Translates a model with one float input and one output for samples of that shape, with the batch
// left free. Throws InputError where the sample does not fit the input, and UnsupportedGraph with
// every node that has no form here.
Imported translate(const OnnxModel& model, const Shape& sample);

// Operations that translate() knows, sorted, and what is not supported of each ("" where nothing is
// left out).
struct SupportedOperation {
  std::string op;
  std::string note;
};
std::vector<SupportedOperation> supported_operations();

}  // namespace steelyard::imports
