// Which modules make the values that a network's outputs are joined of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/import/graph/graph_spec.h"

namespace steelyard::imports {

struct OutputSources {
  // The types of the modules that compute values; what joins and moves them is none.
  std::vector<std::string> types;
  // For each value of a sample's outputs, in a row: an index of `types`.
  std::vector<std::int32_t> of_values;
};

// A detector's output may hold boxes that a sum gives beside scores of a Sigmoid: values of
// different size, which modules of different types compute.
OutputSources output_sources(const GraphSpec& graph);

}  // namespace steelyard::imports
