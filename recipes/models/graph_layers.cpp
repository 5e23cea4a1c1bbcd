// The layers of recipes that are graphs, and what stands in graphs alone: nodes of several inputs.
#include <cmath>

#include "steelyard/layers/activations.h"
#include "steelyard/layers/arithmetic.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/reorder.h"
#include "steelyard/layers/weighted/linear.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

struct GraphOptions {
  YamlNode nodes;
};

// Along which dimension of a sample values are joined.
struct JoinOptions {
  std::optional<std::int64_t> axis = {};
};

std::shared_ptr<Module> make_cat(JoinOptions options, const LayerSpec& spec, Rng&) {
  const bool last = !options.axis || *options.axis == std::ssize(spec.input_shape());
  if (last) return std::make_shared<Cat>();
  return std::make_shared<CatAxis>(*options.axis);
}

struct AttentionOptions {
  std::int64_t heads = 1;
  bool bias = true;
};

std::shared_ptr<Module> make_attention(AttentionOptions options, const LayerSpec& spec, Rng& rng) {
  const Shape& in = spec.input_shape();
  if (in.size() != 2) {
    spec.fail("Attention expects a sequence [length, channels] of floats, got " + shape_string(in));
  }
  const std::int64_t channels = in.back(), heads = options.heads;
  if (channels % heads != 0) {
    fail_at(spec.at("heads").place, "expected a divisor of the " + std::to_string(channels) +
                                        " channels, got " + std::to_string(heads));
  }
  require_weights(spec, channels, channels);
  const std::int64_t width = channels / heads;
  using Modules = std::vector<Graph::NamedNode>;
  Modules nodes;
  const auto linear = [&](const std::string& name, const std::string& input) {
    nodes.push_back({name,
                     std::make_shared<Linear>(LinearOptions{channels, channels, options.bias}, rng),
                     {input}});
  };
  // [N, L, C] as [N, heads, L, width], or keys as [N, heads, width, L].
  const auto split = [&](const std::string& name, const std::vector<std::int64_t>& order) {
    linear(name + "_proj", "input");
    nodes.push_back({name + "_heads", std::make_shared<Reshape>(Shape{0, -1, heads, width})});
    nodes.push_back({name, std::make_shared<Permute>(order)});
  };
  split("q", {0, 2, 1, 3});
  split("k", {0, 2, 3, 1});
  split("v", {0, 2, 1, 3});
  nodes.push_back({"scores", std::make_shared<MatMul>(), {"q", "k"}});
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  nodes.push_back({"scaled", std::make_shared<Affine>(scale, 0)});
  nodes.push_back({"probabilities", std::make_shared<Softmax>()});
  nodes.push_back({"context", std::make_shared<MatMul>(), {"probabilities", "v"}});
  nodes.push_back({"by_step", std::make_shared<Permute>(std::vector<std::int64_t>{0, 2, 1, 3})});
  nodes.push_back({"merged", std::make_shared<Reshape>(Shape{0, -1, channels})});
  linear("out_proj", "merged");
  return std::make_shared<Graph>(nodes);
}

template <Arithmetic operation>
std::shared_ptr<Module> make_pair(const LayerSpec&, Rng&) {
  return std::make_shared<PairArithmetic>(operation);
}

}  // namespace

void add_graph_layers(ModelRegistry& registry) {
  registry.add_layer<GraphOptions>(
      "Graph",
      "nodes with names, of which each says what it reads; the one that nobody reads gives the "
      "output",
      {registry.layer_list("nodes", "each after those that it reads", &GraphOptions::nodes)
           .required()},
      [](GraphOptions options, const LayerSpec& spec, Rng& rng) {
        return spec.build_graph(options.nodes, rng);
      });
  registry.add_layer("Add", "node of a Graph: the sum of two values of one shape", {},
                     [](const LayerSpec&, Rng&) { return std::make_shared<Add>(); });
  registry.add_layer("Sub",
                     "node of a Graph: the first value less the second; sizes of 1 broadcast", {},
                     make_pair<Arithmetic::kSubtract>);
  registry.add_layer("Mul", "node of a Graph: the product of two values; sizes of 1 broadcast", {},
                     make_pair<Arithmetic::kMultiply>);
  registry.add_layer("Div", "node of a Graph: the first value by the second; sizes of 1 broadcast",
                     {}, make_pair<Arithmetic::kDivide>);
  registry.add_layer("Max", "node of a Graph: the larger of two values; sizes of 1 broadcast", {},
                     make_pair<Arithmetic::kMaximum>);
  registry.add_layer("Min", "node of a Graph: the smaller of two values; sizes of 1 broadcast", {},
                     make_pair<Arithmetic::kMinimum>);
  registry.add_layer(
      "MatMul", "node of a Graph: the product of two values that are matrices, or batches of them",
      {}, [](const LayerSpec&, Rng&) { return std::make_shared<MatMul>(); });
  registry.add_layer<JoinOptions>(
      "Cat",
      "node of a Graph: values one after another along a dimension; quantized along the last one",
      {key("axis", "the dimension, from 1 on; absent: the last one", &JoinOptions::axis)
           .within(1, 8)},
      make_cat);
  registry.add_layer<AttentionOptions>(
      "Attention",
      "self-attention of a sequence [length, channels] (Vaswani et al., arXiv:1706.03762), every "
      "step over all steps",
      {key("heads", "into which the channels are split", &AttentionOptions::heads)
           .required()
           .within(1, 1024),
       key("bias", "whether the four linear layers add one", &AttentionOptions::bias).by_default()},
      make_attention);
}

}  // namespace steelyard
