// Where the inputs of an ONNX model lie in the samples of a dataset.
#pragma once

#include <string>
#include <vector>

#include "steelyard/import/translate.h"

namespace steelyard::imports {

// "x, mask".
std::string names_of(const std::vector<OnnxPort>& ports);

// Whether it holds whole numbers, or truths, which are 0 and 1.
bool is_whole(const OnnxPort& port);

// Throws InputError that begins with the file.
[[noreturn]] void fail(const OnnxModel& model, const std::string& why);

// The other dimensions of an input or output than that of the batch.
std::vector<OnnxDim> sample_dims(const OnnxPort& port, std::size_t batch_axis);

// Throws InputError unless there is an input, and each has a shape with a batch of the same size.
void require_inputs(const OnnxModel& model);

// How samples of one shape are an input of another number or order of dimensions.
struct InputForm {
  Shape shape;                 // ONNX's, without the batch
  Shape held;                  // as the first module gives it: images with channels last
  bool channels_last = false;  // whether that is an image's order where ONNX's is another
};

struct PlacedInput {
  PortSpec port;
  InputForm form;
  std::int64_t first = 0;  // of its values in a sample
  bool is_part = false;    // of a sample, or a sample under another shape
};

// All of a model's inputs, in its order. Throws InputError where they are not those of the samples.
std::vector<PlacedInput> placed_inputs(const OnnxModel& model, const SampleSpec& sample);

}  // namespace steelyard::imports
