// Nodes of an operation set in the words of a newer one.
#pragma once

#include <string>

namespace onnx {
class GraphProto;
}

namespace steelyard::imports {

// Rewrites the nodes of a graph, and of the graphs inside of them, where operations changed between
// the operation sets: what were attributes become inputs, whose constants are added to the graph.
// Throws InputError that begins with `file` and names a node that has no newer form.
void rewrite_nodes(onnx::GraphProto& graph, int from, int to, const std::string& file);

}  // namespace steelyard::imports
