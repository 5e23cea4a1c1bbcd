// The readable form of a graph.
#pragma once

#include <string>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// A line per node: name, operation, inputs, shape, quantization, parameters.
std::string to_string(const Graph& graph);

}  // namespace steelyard::deploy
