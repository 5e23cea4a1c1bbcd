#include "steelyard/import/graph/tidy.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace steelyard::imports {
namespace {

using Ints = std::vector<std::int64_t>;

const Ints& integers(const NodeSpec& node, const char* option) {
  return std::get<Ints>(node.options.at(option));
}

class Tidier {
 public:
  Tidier(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights)
      : graph_(graph), weights_(weights) {}

  // A node is looked at when what it reads is tidy, wherever it stands.
  void run() {
    for (NodeSpec& node : graph_.nodes) nodes_[node.name] = &node;
    for (const NodeSpec& node : graph_.nodes) {
      for (const std::string& input : node.inputs) ++readers_[input];
    }
    for (NodeSpec& node : graph_.nodes) look_at(node);
  }

 private:
  void look_at(NodeSpec& node) {
    if (!done_.insert(node.name).second) return;
    for (std::string& input : node.inputs) {
      if (NodeSpec* before = find(input)) look_at(*before);
      if (const auto other = stands_for_.find(input); other != stands_for_.end()) {
        input = other->second;
      }
    }
    if (node.type == "Reshape" || node.type == "Permute") return merge(node);
    if (node.type == "AddConstant" && takes_bias(node)) {
      stands_for_[node.name] = node.inputs[0];
    }
  }

  NodeSpec* find(const std::string& name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : found->second;
  }

  // Whether sizes of a Reshape are those of another Reshape before it, but for the batch's, which
  // that copies too.
  static bool copies_other_sizes(const NodeSpec& node, const NodeSpec& before) {
    const Ints& shape = integers(node, "shape");
    const auto copies = std::count(shape.begin(), shape.end(), 0);
    const Ints& other = integers(before, "shape");
    const bool of_batch = copies == 1 && shape[0] == 0 && !other.empty() && other[0] == 0;
    return copies != 0 && !of_batch;
  }

  // A Reshape or Permute of another one reads what that reads, as another reader where that stays.
  void merge(NodeSpec& node) {
    const NodeSpec* before = find(node.inputs[0]);
    if (before == nullptr || before->type != node.type) return;
    if (node.type == "Reshape" && copies_other_sizes(node, *before)) return;
    if (node.type == "Permute") {
      const Ints& first = integers(*before, "order");
      Ints order;
      for (const std::int64_t axis : integers(node, "order")) {
        order.push_back(first.at(static_cast<std::size_t>(axis)));
      }
      node.options["order"] = order;
    }
    node.inputs = before->inputs;
    if (--readers_[before->name] > 0) ++readers_[node.inputs[0]];
  }

  // Whether the layer before the node, and before a Reshape that leaves channels alone, has the
  // constant as its bias now. The last node stays: it gives the output.
  bool takes_bias(const NodeSpec& node) {
    const Tensor value = weights_.at(node.name).at(0).tensor;
    if (value.rank() == 0 || value.size() != value.dim(-1) || &node == &graph_.nodes.back()) {
      return false;
    }
    NodeSpec* layer = find(node.inputs[0]);
    if (layer != nullptr && layer->type == "Reshape") {
      if (readers_[layer->name] != 1 || integers(*layer, "shape").back() != value.size()) {
        return false;
      }
      layer = find(layer->inputs[0]);
    }
    if (layer == nullptr) return false;
    const bool linear = layer->type == "Linear";
    if (!linear && layer->type != "Conv2d" && layer->type != "Conv1d") return false;
    const std::string outputs = linear ? "out_features" : "out_channels";
    const bool fits = readers_[layer->name] == 1 && !std::get<bool>(layer->options.at("bias")) &&
                      std::get<std::int64_t>(layer->options.at(outputs)) == value.size();
    if (!fits) return false;
    layer->options["bias"] = true;
    weights_[layer->name].push_back({layer->name + ".bias", value.reshape({value.size()})});
    return true;
  }

  GraphSpec& graph_;
  std::map<std::string, std::vector<NamedTensor>>& weights_;
  std::map<std::string, NodeSpec*> nodes_;
  std::map<std::string, int> readers_;
  std::map<std::string, std::string> stands_for_;
  std::set<std::string> done_;
};

// Whether the rows of a Softmax are the last dimension of the output, and what is behind it moves
// no value to another row.
bool is_over_output(const GraphSpec& graph, std::size_t softmax) {
  const Shape& output = graph.output_sample;
  const bool last = softmax + 1 == graph.nodes.size();
  if (last && output.size() <= 2) return true;  // over classes, or over those of each frame
  if (output.empty() || output.back() != shape_size(output)) return false;
  if (last) return true;
  GraphSpec before = graph;
  std::swap(before.nodes[softmax], before.nodes.back());
  prune(before);
  try {
    return output_shape(before).back() == output.back();
  } catch (const std::invalid_argument&) {  // which build() tells
    return false;
  }
}

}  // namespace

void tidy(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights) {
  Tidier(graph, weights).run();
}

void share_weights(GraphSpec& graph, std::map<std::string, std::vector<NamedTensor>>& weights) {
  // Those whose parameters may be another's: the others compute with copies of theirs.
  static const std::set<std::string> kTypes{"Linear",          "Conv1d",      "Conv2d",
                                            "ConvTranspose2d", "BatchNorm1d", "BatchNorm2d",
                                            "LayerNorm",       "Embedding"};
  using Key = std::pair<std::string, std::map<std::string, const void*>>;
  std::map<Key, const NodeSpec*> owners;
  for (NodeSpec& node : graph.nodes) {
    const auto own = weights.find(node.name);
    if (!kTypes.contains(node.type) || own == weights.end()) continue;
    Key key{node.type, {}};
    for (const NamedTensor& tensor : own->second) {
      key.second.emplace(tensor.name.substr(node.name.size()), tensor.tensor.raw());
    }
    const NodeSpec& owner = *owners.try_emplace(std::move(key), &node).first->second;
    if (&owner == &node || owner.options != node.options) continue;
    node.weights_of = owner.name;
    weights.erase(own);
  }
}

void prune(GraphSpec& graph) {
  std::set<std::string> read{graph.nodes.back().name};
  std::vector<NodeSpec> kept;
  // Readers may stand before what they read: the output's maker was moved to the end alone.
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    NodeSpec& node = graph.nodes[i];
    if (!read.contains(node.name)) continue;
    read.insert(node.inputs.begin(), node.inputs.end());
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  graph.nodes = std::move(kept);
}

void split_head(GraphSpec& graph) {
  const std::size_t at = last_computing(graph);
  const NodeSpec head = graph.nodes[at];
  const bool shares = head.type == "Softmax" || head.type == "LogSoftmax";
  if ((!shares && head.type != "Sigmoid") || (shares && !is_over_output(graph, at))) return;
  const std::string& before = head.inputs[0];
  const auto maker = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [&](const NodeSpec& node) { return node.name == before; });
  if (maker == graph.nodes.end()) return;
  if (at + 1 == graph.nodes.size()) {
    if (readers_of(graph, before) != 1) return;
    graph.nodes.pop_back();
    std::rotate(maker, maker + 1, graph.nodes.end());
  } else {
    for (NodeSpec& node : graph.nodes) {
      std::replace(node.inputs.begin(), node.inputs.end(), head.name, before);
    }
    graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  graph.head = head.type;
}

}  // namespace steelyard::imports
