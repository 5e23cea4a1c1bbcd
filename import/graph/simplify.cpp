#include "steelyard/import/graph/simplify.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <utility>

#include "steelyard/import/batch_order.h"
#include "steelyard/import/constants.h"
#include "steelyard/import/einsum.h"
#include "steelyard/import/graph/editable_graph.h"
#include "steelyard/import/graph/fold.h"
#include "steelyard/import/layer_arithmetic.h"
#include "steelyard/import/onnx/freeze.h"
#include "steelyard/import/recognise.h"
#include "steelyard/import/unsupported.h"

namespace steelyard::imports {
namespace {

bool fold_one(EditableGraph& graph, const OnnxNode& node,
              const std::vector<const Constant*>& inputs) {
  try {
    auto values = fold(node, inputs, graph.model);
    if (!values || values->size() < node.outputs.size()) return false;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      graph.model.initializers[node.outputs[i]] = std::move((*values)[i]);
    }
    return true;
  } catch (const Unsupported&) {
    return false;  // told when the node is translated, if anybody reads it
  }
}

void fold_constants(EditableGraph& graph) {
  std::vector<OnnxNode> left;
  std::deque<OnnxNode> nodes(std::make_move_iterator(graph.model.nodes.begin()),
                             std::make_move_iterator(graph.model.nodes.end()));
  while (!nodes.empty()) {
    OnnxNode node = std::move(nodes.front());
    nodes.pop_front();
    if (const auto branch = chosen_branch(graph.model, node); !branch.empty()) {
      nodes.insert(nodes.begin(), branch.begin(), branch.end());
      continue;
    }
    std::vector<const Constant*> inputs;
    bool known = true;
    for (const std::string& input : node.inputs) {
      inputs.push_back(input.empty() ? nullptr : graph.constant(input));
      known = known && (input.empty() || inputs.back() != nullptr);
    }
    if (!known || !fold_one(graph, node, inputs)) left.push_back(std::move(node));
  }
  graph.model.nodes = std::move(left);
}

bool does_nothing(const EditableGraph& graph, const OnnxNode& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.outputs[0].empty()) return false;
  if (node.op == "Identity") return true;
  if (node.op == "Dropout") {
    if (!node.input(2).empty()) return false;  // it may say that training is meant
    return std::all_of(node.outputs.begin() + 1, node.outputs.end(),
                       [&](const std::string& o) { return !graph.is_read(o); });
  }
  if (node.op != "Mul" && node.op != "Div" && node.op != "Add" && node.op != "Sub") return false;
  const Constant* second = graph.constant(node.input(1));
  if (second == nullptr || second->shape.size() > 1 || graph.constant(node.input(0)) != nullptr)
    return false;
  const auto value = scalar_of(*second);
  return value && *value == (node.op == "Mul" || node.op == "Div" ? 1 : 0);
}

void drop_what_does_nothing(EditableGraph& graph) {
  std::map<std::string, std::string> stands_for;
  const auto resolved = [&](const std::string& name) {
    const auto found = stands_for.find(name);
    return found == stands_for.end() ? name : found->second;
  };
  for (OnnxNode& node : graph.model.nodes) {
    for (std::string& input : node.inputs) input = resolved(input);
    if (does_nothing(graph, node)) stands_for[node.outputs[0]] = node.inputs[0];
  }
  for (std::string& output : graph.outputs) output = resolved(output);
  graph.index();
}

// From the end: the outermost node of a pattern comes first.
void recognise_patterns(EditableGraph& graph) {
  for (std::size_t i = graph.model.nodes.size(); i-- > 0;) {
    const OnnxNode& node = graph.model.nodes[i];
    if (graph.readers_of(node) == 0) continue;
    if (auto one = recognised(graph, node)) graph.replace(i, std::move(*one));
  }
  graph.remove_unread();
}

}  // namespace

SimplifiedModel simplify(OnnxModel model) {
  for (auto& [name, constant] : model.initializers) constant.origin = name;
  EditableGraph graph(std::move(model));
  fold_constants(graph);
  graph.index();
  spell_out_einsum(graph);
  drop_what_does_nothing(graph);
  graph.model.nodes =
      with_batch_first(std::move(graph.model.nodes), graph.model.initializers, graph.outputs);
  graph.remove_unread();
  recognise_patterns(graph);
  make_layers(graph);
  return {std::move(graph.model), std::move(graph.outputs)};
}

}  // namespace steelyard::imports
