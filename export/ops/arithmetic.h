// What sums, differences, products and quotients of floats share in files.
#pragma once

#include <string>

#include "steelyard/export/onnx/onnx_nodes.h"

namespace steelyard::deploy {

// ONNX's operation of that name on both operands.
void add_arithmetic(OnnxNodes& nodes, const Node& node, const std::string& operation,
                    const std::string& output);

}  // namespace steelyard::deploy
