// The last map of a graph: outputs in the units of a regression's targets.
#pragma once

#include <optional>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// output = value * scale + shift of each column, the last dimension: two operations of f32.
struct OutputMap {
  Tensor scale;  // f32 [columns]
  Tensor shift;
};

// The product and sum with constants that a graph ends in; nothing where it ends otherwise.
std::optional<OutputMap> output_map(const Graph& graph);
// The graph of the value before that map; one without a map as it is.
Graph without_output_map(Graph graph);

}  // namespace steelyard::deploy
