#include "steelyard/recipes/runs/graph_costs.h"

#include <bit>

#include "steelyard/runtime/op_info.h"

namespace steelyard {
namespace {

using deploy::Graph;
using deploy::Node;
using deploy::Op;

constexpr int kFloatWidth = 32;

// Bits of the codes of a value; 32 of a float.
int width_of(const deploy::Value& value) {
  if (!value.quantization) return kFloatWidth;
  const kernels::CodeRange& range = value.quantization->range;
  return std::bit_width(static_cast<std::uint32_t>(range.qmax - range.qmin));
}

struct ProductCost {
  std::int64_t macs = 0;
  int first = kFloatWidth, second = kFloatWidth;  // the widths of the factors
};

ProductCost of_layer(const Graph& graph, const Node& node) {
  const deploy::Weights& weights = *node.weights;
  const deploy::Value& input = graph.values[node.inputs[0]];
  // A transposed convolution reads each input once for each weight of its channel.
  const bool transposed = node.op == Op::kConvTranspose2d;
  const Shape& used = transposed ? input.shape : graph.values[node.output].shape;
  const std::int64_t channels = transposed ? used.back() : weights.weight.dim(0);
  ProductCost product{node.recurrent
                          ? used[0] * (weights.weight.size() + node.recurrent->weight.size())
                          : shape_size(used) / channels * weights.weight.size()};
  if (weights.integer()) {
    product.first = width_of(input);
    product.second = weights.bits;
  }
  return product;
}

ProductCost of_values(const Graph& graph, const Node& node) {
  const deploy::Value& a = graph.values[node.inputs[0]];
  ProductCost product{shape_size(graph.values[node.output].shape) * a.shape.back()};
  if (node.inputs.size() < 2) return product;  // a constant matrix, in float
  const deploy::Value& b = graph.values[node.inputs[1]];
  if (a.quantization && b.quantization) {
    product.first = width_of(a);
    product.second = width_of(b);
  }
  return product;
}

// Each step multiplies the input and the state by the matrices of all gates.
ProductCost of_recurrence(const Graph& graph, const Node& node) {
  std::int64_t weights = 0;
  for (const deploy::Constant& constant : node.constants) {
    if (constant.value.rank() > 1) weights += constant.value.size();
  }
  return {graph.values[node.inputs[0]].shape[0] * weights};
}

ProductCost product_of(const Graph& graph, const Node& node) {
  if (node.weights && deploy::op_info(node.op).has_weights) return of_layer(graph, node);
  if (node.op == Op::kMatmul) return of_values(graph, node);
  if (node.op == Op::kLstm || node.op == Op::kGru) return of_recurrence(graph, node);
  return {};
}

}  // namespace

double GraphCosts::integer_share() const {
  return macs == 0 ? 1 : static_cast<double>(integer_macs) / static_cast<double>(macs);
}

GraphCosts costs_of(const deploy::Graph& graph) {
  GraphCosts costs{.bytes = deploy::parameter_bytes(graph)};
  for (const Node& node : graph.nodes) {
    const ProductCost product = product_of(graph, node);
    costs.macs += product.macs;
    costs.bit_operations += product.macs * product.first * product.second;
    if (product.first < kFloatWidth) costs.integer_macs += product.macs;
  }
  return costs;
}

}  // namespace steelyard
