// Constant folding: ONNX operations on known values are computed once, at import.
#pragma once

#include <optional>
#include <vector>

#include "steelyard/import/onnx/onnx_model.h"

namespace steelyard::imports {

// Whether fold() computes a node's operation.
bool is_folded(const OnnxNode& node);

// The outputs of a node whose inputs are these (null where one is absent); nothing for an operation
// that is not computed here. Throws Unsupported for arguments that do not fit and for results that
// are too large; UnsupportedGraph where memory and work are more than what is left of
// `model.foldable_bytes`, from which they are taken.
std::optional<std::vector<Constant>> fold(const OnnxNode& node,
                                          const std::vector<const Constant*>& inputs,
                                          OnnxModel& model);

}  // namespace steelyard::imports
