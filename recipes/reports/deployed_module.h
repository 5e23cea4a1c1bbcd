// The integer model as a module.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/data/batches.h"
#include "steelyard/runtime/interpreter.h"

namespace steelyard {

// The graph without its last node, an activation that training's loss contains.
inline deploy::Graph before_head(deploy::Graph graph) {
  const std::size_t logits = graph.nodes.back().inputs.at(0);
  if (graph.output + 1 == graph.values.size()) graph.values.pop_back();
  graph.nodes.pop_back();
  graph.output = logits;
  graph.resized.clear();
  return graph;
}

// So that it is evaluated as the others are.
class Deployed : public Module {
 public:
  // `targets`: how those are normalized that its outputs are compared with.
  Deployed(deploy::Graph graph, Normalization targets)
      : interpreter_(std::move(graph), deploy::Engine::kFast), targets_(std::move(targets)) {}
  Variable forward(const Variable& x, ForwardContext&) override {
    const Tensor outputs = interpreter_.run(x.value());
    return Variable(targets_.mean.empty() ? outputs : normalized(outputs, targets_));
  }
  std::string type_name() const override { return "Deployed"; }

 private:
  deploy::Interpreter interpreter_;
  Normalization targets_;
};

}  // namespace steelyard
