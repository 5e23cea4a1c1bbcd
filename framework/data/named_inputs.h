// Samples of several inputs, each of which is an array of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "steelyard/framework/data/dataset.h"

namespace steelyard {

struct InputSource {
  std::string name;
  std::shared_ptr<const SampleSource> samples;
};

// Makes them the dataset's inputs: a sample is the values of all of them, one after another, f32
// [values]. Bytes are whole numbers here. Throws InputError that starts with `source` unless each
// has as many samples as the first.
void set_named_inputs(Dataset& dataset, const std::vector<InputSource>& inputs,
                      const std::string& source);

}  // namespace steelyard
