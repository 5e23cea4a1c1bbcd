// The parts of a resized image.
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

inline const std::array<std::int64_t, 2>& repeats_of(const Node& node) {
  return node.as<Repeats>().repeats;
}

// The constants' order: of the height, of the width, where these have weights.
inline std::size_t place_of(const Node& node, std::size_t side) {
  return side == 0 || repeats_of(node)[0] > 0 ? 1 : 2;
}

}  // namespace steelyard::deploy
