// Whether ONNX Runtime's default session can give wrong sums: on x86 without VNNI its kernels add
// two products of u8 and s8 at a time in 16 bits, and that sum saturates.
#pragma once

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Whether the sum of two products of the graph can leave 16 bits, for some inputs. Never where
// weights have 7 bits or fewer.
bool may_saturate(const Graph& graph);

}  // namespace steelyard::deploy
