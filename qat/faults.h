// The faults that quantizers have counted, as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "steelyard/qat/prepare.h"

namespace steelyard::qat {

// The first quantizer with a fault since the last call: one sentence that names it, or for a bias
// the layer and channel. Those before it start anew. Waits for a GPU.
std::optional<std::string> take_fault(const std::vector<NamedQuantizer>& quantizers);

}  // namespace steelyard::qat
