// How a graph is computed call by call (stream.h).
#pragma once

#include <cstdint>
#include <optional>

namespace steelyard::deploy {

struct StreamOptions {
  std::int64_t frames = 1;  // new ones in each call
  // Which dimension of a sample is time; absent: the first one of more than one position.
  std::optional<std::int64_t> axis = {};
};

}  // namespace steelyard::deploy
