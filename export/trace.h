// From a model to its graph: what one forward pass in evaluation recorded.
#pragma once

#include <string>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// A graph with the tensors of the pass that it was read from.
struct Trace {
  Graph graph;
  std::vector<Variable> values;  // as graph.values, for the whole batch
};

// Runs the model once on f32 `inputs` [N, ...] and reads the tape: any module, a user's own too,
// whose operations have a deployed form. Parts that were left in float stay so. Throws InputError
// naming the module and the operation otherwise. The graph's preprocessing is left to the caller.
Trace trace(Module& model, const Tensor& inputs, const std::string& name);

// Values computed beside the tape look like constants, and a forward pass may decide by its
// samples. Runs the model on others than the `inputs` that gave the graph, and throws InputError
// where its operations or constants are not the same; not where the model does not take them.
void require_constants(const Graph& graph, Module& model, const Tensor& inputs);

}  // namespace steelyard::deploy
