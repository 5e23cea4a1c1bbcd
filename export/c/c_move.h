// Codes that change their places, in C programs.
#pragma once

#include <cstdint>
#include <vector>

#include "steelyard/export/c/c_nodes.h"

namespace steelyard::deploy {

// One dimension of what is moved: `size` elements, `from` apart in the input and `to` apart in the
// output.
struct CMoved {
  std::int64_t size, from, to;
};

// A call that writes these codes of `input` to the node's output, from the given first ones on.
// Throws std::invalid_argument where more than six dimensions have an order of their own.
void add_c_move(CNodes& nodes, const Node& node, std::size_t input, std::vector<CMoved> dims,
                std::int64_t first_from = 0, std::int64_t first_to = 0);

}  // namespace steelyard::deploy
