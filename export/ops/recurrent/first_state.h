// What recurrent networks share in ONNX files.
#pragma once

#include <string>

#include "steelyard/export/onnx/onnx_nodes.h"

namespace steelyard::deploy {

// Writes the state [H] before the first step for every sample, [1, N, H]; returns its name. `in` is
// [L, N, I].
std::string first_state(OnnxNodes& nodes, const Node& node, const char* name, const Tensor& state,
                        const std::string& in);

}  // namespace steelyard::deploy
