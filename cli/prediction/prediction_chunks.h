// The samples of an input, read some at a time: whatever the input's size, and good ones whatever
// the others are.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "steelyard/framework/data/sample_source.h"

namespace steelyard::cli {

// Consecutive samples. What is wrong with one is a message; empty: nothing.
struct SampleChunk {
  std::vector<std::string> faults = {};  // of each sample
  Tensor rows = {};  // inputs, or a model's outputs, of the samples without a fault in their order

  bool has_rows() const { return rows.defined() && rows.dim(0) > 0; }
};

// Reads samples `first` to `end` - 1: an InputError is the fault of its sample.
SampleChunk read_chunk(const SampleSource& source, std::int64_t first, std::int64_t end);

// Computes a row for each sample from a batch of inputs.
using BatchFunction = std::function<Tensor(const Tensor&)>;

// The outputs for the inputs of a chunk. A sample for which the model throws std::out_of_range or
// InputError gets a fault.
SampleChunk run_on_chunk(const SampleChunk& inputs, const BatchFunction& run);
// The inputs of those samples for which `run` throws neither.
SampleChunk accepted_by(const SampleChunk& inputs, const BatchFunction& run);
// Outputs that are not finite are a fault of their sample.
SampleChunk finite_rows(SampleChunk outputs);

}  // namespace steelyard::cli
