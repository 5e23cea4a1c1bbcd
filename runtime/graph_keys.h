// The names in graph files, of those who read and who write them.
#pragma once

#include <cstddef>
#include <string>

namespace steelyard::deploy {

inline constexpr const char* kKindKey = "kind";
inline constexpr const char* kKind = "integer-model";
inline constexpr const char* kVersionKey = "graph_version";
// Readers of a version know what was there before it: 2 has weights with zero points and integer
// sums of groups, 3 codes of more than 8 bits, 5 constants, 11 weights that several nodes have (13:
// but for the biases), 13 inputs and outputs of ONNX files that do not have the batch first, 14
// codes in fixed point, 16 recurrent weights, 17 tables of codes; the row of an operation, or a
// form of it, says its version (op_info.h).
inline constexpr const char* kGraphKey = "graph";
inline constexpr const char* kBatchAxisKey =
    "batch_axis";  // of ports that do not have the batch first
inline constexpr const char* kRoundingKey =
    "rounding";  // of codes, where they are not rounded as floats
inline constexpr const char* kWeightsOfKey =
    "weights_of";  // the node under whose name they are stored
inline constexpr const char* kRecurrentKey = "recurrent";  // weights of the step before
inline constexpr const char* kWeightOfKey = "weight_of";   // likewise, but for the bias

// The name that tensors of a node's recurrent weights begin with.
inline std::string recurrent_name(const std::string& node) { return node + "." + kRecurrentKey; }

// The tensor that is a node's constant.
inline std::string constant_name(const std::string& node, std::size_t place) {
  return node + ".operand" + std::to_string(place);
}

}  // namespace steelyard::deploy
