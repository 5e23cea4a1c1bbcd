// From an ONNX model to a network of our modules.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/files/safetensors.h"
#include "steelyard/import/graph/graph_spec.h"
#include "steelyard/import/onnx/onnx_model.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {

struct Imported {
  GraphSpec graph;
  std::vector<NamedTensor> weights;  // f32, by the modules' names: "conv1.weight"
  std::vector<std::string> notes =
      {};  // on sizes and types that the file has and an export has not
};

// The samples that a model reads: of one shape, images as [H, W, C], or of several inputs, whose
// values lie one after another.
struct SampleSpec {
  SampleSpec(Shape whole, std::vector<NamedInput> of_inputs = {})  // NOLINT: a shape is one
      : shape(std::move(whole)), inputs(std::move(of_inputs)) {}
  SampleSpec(std::initializer_list<std::int64_t> whole) : shape(whole) {}
  Shape shape;
  std::vector<NamedInput> inputs;
};

// Which dimension of an input is the batch.
struct BatchAxis {
  std::string input;  // "": the only one
  std::int64_t axis = 0;
};

// Says where the batch is in some inputs. Throws InputError for an input or dimension that is not
// there.
void choose_batch_axes(OnnxModel& model, const std::vector<BatchAxis>& axes);

// Which dimension of an input is the batch: the one that was said; else the one whose name all
// inputs have, called a batch if one is, else first in most of them; else the first.
std::size_t batch_axis(const OnnxModel& model, const OnnxPort& input);

// What the model's inputs say, or `given` for those that it names ("" for the only one). Throws
// InputError where a size is free.
SampleSpec sample_of(const OnnxModel& model, const std::vector<NamedInput>& given = {});

// Leaves the outputs of these names as the model's, in this order, or makes them of values that
// nodes give: what comes after them is cut off. None leaves all. Throws InputError, naming the
// outputs, where nothing is called so.
void choose_outputs(OnnxModel& model, const std::vector<std::string>& names);

// Translates a model with all of its outputs for such samples, with the batch left free, and other
// sizes that the file leaves free where no module depends on them (PortSpec::free). Throws
// InputError where the samples do not fit the inputs, and UnsupportedGraph with every node that has
// no form here.
Imported translate(const OnnxModel& model, const SampleSpec& sample);

// Operations that translate() knows, sorted, and what is not supported of each ("" where nothing is
// left out).
struct SupportedOperation {
  std::string op;
  std::string note;
};
std::vector<SupportedOperation> supported_operations();

}  // namespace steelyard::imports
