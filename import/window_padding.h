// Merges Pad nodes into the convolutions and poolings that follow them.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// The Conv, AveragePool or MaxPool `window` that reads what `pad` reads and pads as both did;
// nothing where one node cannot say that. Exporters write such a Pad for pooled means that count
// padding, for TensorFlow's paddings and in front of MaxPool.
std::optional<OnnxNode> with_padding(const OnnxNode& window, const OnnxNode& pad,
                                     const std::map<std::string, Constant>& constants);

}  // namespace steelyard::imports
