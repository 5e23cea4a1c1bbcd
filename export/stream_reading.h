// Which positions along a dimension an operation reads for one position of its output.
#pragma once

#include <cstdint>
#include <string>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Position p of the output's dimension `axis` reads the positions from p * stride - before on, up
// to and with `reach` after it.
struct StreamReading {
  bool whole = false;  // all positions for all of the output
  std::size_t axis = 0;
  std::int64_t stride = 1;
  std::int64_t before = 0;
  std::int64_t reach = 0;
  std::string refusal = {};  // why the operation is none of these
};

// Of the node's input i along its dimension `axis`.
StreamReading stream_reading(const Graph& graph, const Node& node, std::size_t i, std::size_t axis);

// Takes the padding along a dimension of the input away.
void unpad(Node& node, std::size_t axis);

}  // namespace steelyard::deploy
