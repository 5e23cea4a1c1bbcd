// What translation leaves that one module less computes too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "steelyard/framework/files/safetensors.h"
#include "steelyard/import/graph/graph_spec.h"

namespace steelyard::imports {

// Merges a Reshape or Permute into the one before it, and the constant of each channel that is
// added after a convolution into its bias. Nodes that nobody reads then stay. `weights`: of each
// node.
void tidy(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights);

// Nodes of one type and options, whose parameters are the same tensors, use those of the first one:
// a change of them is one for all. Takes what they had from `weights`.
void share_weights(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights);

// Takes out the nodes that the last one does not read, such as those that only asked for a shape.
void prune(GraphSpec& graph);

// Makes a last Softmax, LogSoftmax or Sigmoid the graph's head, also where its values are only
// moved behind it: losses take what is before it.
void split_head(GraphSpec& graph);

}  // namespace steelyard::imports
