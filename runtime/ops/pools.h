// The common part of pools over windows: shape, checks.
#pragma once

#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

Shape pool_shape(const Graph& graph, const Node& node);
// A window has at most so many pixels: int32 holds the sum of their codes.
void check_window(const Node& node, std::int64_t pixels);

// The factor from a sum of codes to the real average.
float average_factor(const Quantization& in, std::int64_t count);

}  // namespace steelyard::deploy
