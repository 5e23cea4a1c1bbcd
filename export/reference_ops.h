// Every operation of a graph as plain loops. Of the code that trains, it uses kernels/affine.h
// only.
#pragma once

#include <vector>

#include "steelyard/export/graph.h"

namespace steelyard::deploy {

// A node with the tensors of the batch: inputs are among `values`, the result is to be filled.
struct Operands {
  const Graph& graph;
  const Node& node;
  const std::vector<Tensor>& values;
  const Tensor& result;

  const Tensor& input(std::size_t i) const { return values[node.inputs[i]]; }
  const Value& input_value(std::size_t i) const { return graph.values[node.inputs[i]]; }
  const Tensor& output() const { return result; }
  const Value& output_value() const { return graph.values[node.output]; }
};

// Fills the output. The graph was validated.
void run_reference(const Operands& operands);
// Its linear maps: linear and conv2d.
void run_linear_map(const Operands& operands);

}  // namespace steelyard::deploy
