// Arithmetic with fixed numbers as affine maps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/import/graph/graph_spec.h"

namespace steelyard::imports {

// Makes nodes that add, subtract, multiply or divide by a number (x / number, not number / x)
// Affine nodes, and several in a row one. Nodes that are read no more stay.
void make_code_grid(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights);

}  // namespace steelyard::imports
