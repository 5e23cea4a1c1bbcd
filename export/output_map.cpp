#include "steelyard/export/output_map.h"

namespace steelyard::deploy {
namespace {

// Whether the node combines one value with a number for each of its columns.
bool is_by_columns(const Graph& graph, const Node& node, Op op) {
  if (node.op != op || node.inputs.size() != 1 || node.constants.size() != 1) return false;
  const Value& output = graph.values[node.output];
  return node.activation == kernels::Activation::kNone && !output.quantization &&
         !output.shape.empty() && node.constants[0].value.shape() == Shape{output.shape.back()} &&
         output.shape == graph.values[node.inputs[0]].shape;
}

}  // namespace

std::optional<OutputMap> output_map(const Graph& graph) {
  if (graph.nodes.size() < 2) return std::nullopt;
  const Node& sum = graph.nodes.back();
  const Node& product = graph.nodes[graph.nodes.size() - 2];
  const bool ends_so = sum.output == graph.output && is_by_columns(graph, sum, Op::kAdd) &&
                       is_by_columns(graph, product, Op::kMul) && sum.inputs[0] == product.output;
  if (!ends_so) return std::nullopt;
  return OutputMap{product.constants[0].value, sum.constants[0].value};
}

Graph without_output_map(Graph graph) {
  if (!output_map(graph)) return graph;
  graph.output = graph.nodes[graph.nodes.size() - 2].inputs[0];
  for (int i = 0; i < 2; ++i) {
    const std::size_t made = graph.nodes.back().output;
    graph.nodes.pop_back();
    // Values have the order of their nodes, unless somebody else wrote the file.
    if (made + 1 == graph.values.size()) graph.values.pop_back();
  }
  return graph;
}

}  // namespace steelyard::deploy
