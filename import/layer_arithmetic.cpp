#include "steelyard/import/layer_arithmetic.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "steelyard/import/constants.h"

namespace steelyard::imports {
namespace {

// Values of the last dimension, or one for all of it.
bool is_row(const Constant& c, std::int64_t width) {
  const bool leads_ones = c.shape.empty() || c.size() == c.shape.back();
  return leads_ones && c.shape.size() <= 2 && (c.size() == width || c.size() == 1);
}
Constant as_row(const Constant& c, std::int64_t width) {
  Constant row{.shape = {width}, .floating = true, .reals = c.reals, .origin = c.origin};
  if (c.size() == 1) row.reals.assign(static_cast<std::size_t>(width), c.reals[0]);
  return row;
}

// Whether a constant has a number for each channel, which are dimension 1 of images or rows of
// `rank` dimensions: [1, C, 1, 1], [C, 1, 1].
bool is_of_channels(const Constant& c, std::int64_t channels, std::size_t rank) {
  if (c.size() != channels || c.shape.size() + 1 < rank || c.shape.size() > rank) return false;
  return c.shape[c.shape.size() + 1 - rank] == channels;
}

// A linear map with constant weights of which node i alone reads the output.
struct Layer {
  OnnxNode node;
  std::int64_t outputs = 0;
  std::size_t rank = 0;  // of the weight
};
// A number for each output of the layer, from one for each or one for all.
std::optional<Constant> of_outputs(const Constant& value, const Layer& layer) {
  if (!value.floating || value.shape.size() > layer.rank) return std::nullopt;
  const bool fits = layer.node.op == "Linear"
                        ? is_row(value, layer.outputs)
                        : value.size() == 1 || is_of_channels(value, layer.outputs, layer.rank);
  return fits ? std::optional(as_row(value, layer.outputs)) : std::nullopt;
}

class LayerMaker {
 public:
  explicit LayerMaker(EditableGraph& graph) : graph_(graph) {}

  void take(std::size_t i) {
    OnnxNode& node = graph_.model.nodes[i];
    if (!node.domain.empty()) return;
    if (node.op == "MatMul") return matmul_to_linear(node);
    if (node.op == "Gemm") return gemm_to_linear(node);
    if (node.op == "Add") take_bias(i);
    if (node.op == "Mul") take_factor(i, /*divides=*/false);
    if (node.op == "Div") take_factor(i, /*divides=*/true);
  }

 private:
  void matmul_to_linear(OnnxNode& node) {
    const Constant* weight = graph_.constant(node.input(1));
    if (weight == nullptr || !weight->floating || weight->shape.size() != 2) return;
    // Once, however many nodes multiply by it.
    std::string& name = turned_[node.input(1)];
    if (name.empty()) name = graph_.add_constant(node.input(1), transposed(*weight, {1, 0}));
    node.op = "Linear";
    node.domain = kOwnDomain;
    node.inputs = {node.input(0), name};
  }

  void gemm_to_linear(OnnxNode& node) {
    const Constant* weight = graph_.constant(node.input(1));
    const std::string third = node.input(2);
    const Constant* bias = graph_.constant(third);
    if (weight == nullptr || !weight->floating || weight->shape.size() != 2) return;
    if (node.integer("transA", 0) != 0 || (!third.empty() && bias == nullptr)) return;
    Constant linear = node.integer("transB", 0) != 0 ? *weight : transposed(*weight, {1, 0});
    const float alpha = node.real("alpha", 1), beta = node.real("beta", 1);
    if (bias != nullptr && (!bias->floating || !is_row(*bias, linear.shape[0]))) return;
    for (float& v : linear.reals) v *= alpha;
    const std::int64_t outputs = linear.shape[0];
    std::vector<std::string> inputs{node.input(0),
                                    graph_.add_constant(node.input(1), std::move(linear))};
    if (bias != nullptr) {
      Constant row = as_row(*bias, outputs);
      for (float& v : row.reals) v *= beta;
      inputs.push_back(graph_.add_constant(third, std::move(row)));
    }
    node.op = "Linear";
    node.domain = kOwnDomain;
    node.inputs = std::move(inputs);
    node.attributes.clear();
  }

  std::optional<Layer> layer_before(const std::string& output) const {
    for (const char* op : {"Linear", "Conv", "ConvTranspose"}) {
      const OnnxNode* layer = graph_.inner(output, op);
      if (layer == nullptr || layer->inputs.size() > 3) continue;
      const Constant* weight = graph_.constant(layer->input(1));
      const std::string bias = layer->input(2);
      if (weight == nullptr || !weight->floating || weight->shape.size() < 2) continue;
      const bool transposed = op == std::string("ConvTranspose");
      const std::int64_t groups = layer->integer("group", 1);
      if (groups < 1 || groups > weight->shape[0]) continue;
      const std::int64_t outputs = transposed ? weight->shape[1] * groups : weight->shape[0];
      const Constant* own = graph_.constant(bias);
      if (!bias.empty() && (own == nullptr || !own->floating || own->size() != outputs)) continue;
      if (outputs < 1 || weight->size() % outputs != 0) continue;
      return Layer{*layer, outputs, weight->shape.size()};
    }
    return std::nullopt;
  }

  // The layer in place of node i, under its own name.
  void replace_by(std::size_t i, const Layer& layer) {
    graph_.replace(i, layer.node);
    graph_.model.nodes[i].name = layer.node.name;
  }

  void take_bias(std::size_t i) {
    for (std::size_t k = 0; k < 2; ++k) {
      const std::string name = graph_.model.nodes[i].input(k);
      const Constant* value = graph_.constant(name);
      auto layer =
          value == nullptr ? std::nullopt : layer_before(graph_.model.nodes[i].input(1 - k));
      auto bias = layer ? of_outputs(*value, *layer) : std::nullopt;
      if (!bias) continue;
      if (const Constant* own = graph_.constant(layer->node.input(2))) {
        if (graph_.model.keeps_weights) continue;
        std::transform(own->reals.begin(), own->reals.end(), bias->reals.begin(),
                       bias->reals.begin(), std::plus<>());
      }
      layer->node.inputs.resize(3);
      layer->node.inputs[2] = graph_.add_constant(name, std::move(*bias));
      return replace_by(i, *layer);
    }
  }

  // A factor of each output, which the weights take.
  void take_factor(std::size_t i, bool divides) {
    if (graph_.model.keeps_weights) return;
    for (std::size_t k = divides ? 1 : 0; k < 2; ++k) {
      const std::string name = graph_.model.nodes[i].input(k);
      const Constant* value = graph_.constant(name);
      auto layer =
          value == nullptr ? std::nullopt : layer_before(graph_.model.nodes[i].input(1 - k));
      if (!layer || layer->node.op == "ConvTranspose") continue;
      auto factor = of_outputs(*value, *layer);
      if (!factor) continue;
      const auto scaled = [&](const std::string& of) {
        Constant weight = *graph_.constant(of);
        const auto each = static_cast<std::size_t>(weight.size() / layer->outputs);
        for (std::size_t at = 0; at < weight.reals.size(); ++at) {
          const float by = factor->reals[at / each];
          weight.reals[at] = divides ? weight.reals[at] / by : weight.reals[at] * by;
        }
        return graph_.add_constant(of, std::move(weight));
      };
      layer->node.inputs[1] = scaled(layer->node.input(1));
      if (!layer->node.input(2).empty()) layer->node.inputs[2] = scaled(layer->node.input(2));
      return replace_by(i, *layer);
    }
  }

  EditableGraph& graph_;
  std::map<std::string, std::string> turned_;  // names of transposed matrices, by the matrices'
};

}  // namespace

void make_layers(EditableGraph& graph) {
  LayerMaker maker(graph);
  // In order: a sum is of a layer that is one already.
  for (std::size_t i = 0; i < graph.model.nodes.size(); ++i) maker.take(i);
  graph.remove_unread();
}

}  // namespace steelyard::imports
