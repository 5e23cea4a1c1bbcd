// The common part of pools over windows: text, shape, checks.
#pragma once

#include "steelyard/export/ops/support.h"

namespace steelyard::deploy {

// " 2x2, stride 2x2, padding 0x0".
std::string pool_text(const Node& node);
Shape pool_shape(const Graph& graph, const Node& node);
// A window has at most so many pixels: int32 holds the sum of their codes.
void check_window(const Node& node, std::int64_t pixels);

// "3x3".
std::string extent_text(const std::array<std::int64_t, 2>& pair);

}  // namespace steelyard::deploy
