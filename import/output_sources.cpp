#include "steelyard/import/output_sources.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/ops/elementwise/activations.h"  // IWYU pragma: keep
#include "steelyard/framework/tensor/tensor.h"
#include "steelyard/kernels/activation/activation.h"
#include "steelyard/layers/stored_options.h"

namespace steelyard::imports {
namespace {

bool joins_values(const std::string& type) {
  return type == "Cat" || type == "CatAxis" || type == kOutputParts;
}

bool keeps_values(const std::string& type) {
  return moves_values(type) || joins_values(type) || type == "Slice";
}

// The nodes behind which values are only joined and moved, up to the outputs.
std::set<std::string> last_moves(const GraphSpec& graph) {
  std::set<std::string> moves;
  if (graph.nodes.empty() || !graph.head.empty()) return moves;
  std::set<std::string> read{graph.nodes.back().name};
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    if (!read.contains(node->name) || !keeps_values(node->type)) continue;
    moves.insert(node->name);
    read.insert(node->inputs.begin(), node->inputs.end());
  }
  return moves;
}

// The graph with the index of its source in the place of each value that a module computed.
GraphSpec with_indices(const GraphSpec& graph, const std::set<std::string>& moves,
                       std::vector<std::string>& types) {
  GraphSpec marked = graph;
  marked.nodes.clear();
  const auto type_of = [&](const std::string& name) -> std::string {
    const auto maker = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [&](const NodeSpec& node) { return node.name == name; });
    return maker == graph.nodes.end() ? name : maker->type;
  };
  std::set<std::string> made;
  for (NodeSpec node : graph.nodes) {
    if (moves.contains(node.name)) {
      for (std::string& input : node.inputs) {
        if (moves.contains(input)) continue;
        const std::string type = type_of(input);
        auto at = std::find(types.begin(), types.end(), type);
        if (at == types.end()) at = types.insert(at, type);
        const double index = static_cast<double>(at - types.begin());
        const std::string name = input + " source";
        if (made.insert(name).second) {
          marked.nodes.push_back(
              {name, "Affine", {input}, stored_options(kernels::Ramp{0, index})});
        }
        input = name;
      }
    }
    marked.nodes.push_back(std::move(node));
  }
  return marked;
}

}  // namespace

OutputSources output_sources(const GraphSpec& graph) {
  const std::set<std::string> moves = last_moves(graph);
  OutputSources sources{{}, std::vector<std::int32_t>(shape_size(graph.output_sample))};
  const bool joined = std::any_of(
      graph.nodes.begin(), graph.nodes.end(),
      [&](const NodeSpec& node) { return moves.contains(node.name) && joins_values(node.type); });
  if (!joined) {
    sources.types = {output_activation(graph)};
    return sources;
  }
  const GraphSpec marked = with_indices(graph, moves, sources.types);
  const NoGradGuard no_grad;
  ForwardContext context;
  Shape one = graph.sample;
  one.insert(one.begin(), 1);
  const Tensor indices = build(marked, /*with_head=*/false, "the network")
                             ->forward(Variable(Tensor::zeros(one)), context)
                             .value();
  for (std::size_t i = 0; i < sources.of_values.size(); ++i) {
    sources.of_values[i] = static_cast<std::int32_t>(std::lround(indices.data<float>()[i]));
  }
  return sources;
}

}  // namespace steelyard::imports
