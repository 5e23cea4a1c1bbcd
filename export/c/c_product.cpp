#include "steelyard/export/c/c_product.h"

#include <algorithm>
#include <cstdlib>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/packed_codes.h"
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// Of the weights of each output: their sum, and the sum of their absolute values.
struct WeightSums {
  std::vector<std::int64_t> sum, magnitude;
};

WeightSums weight_sums(std::span<const std::int8_t> codes, std::int64_t outputs) {
  const auto count = static_cast<std::size_t>(outputs);
  WeightSums sums{std::vector<std::int64_t>(count, 0), std::vector<std::int64_t>(count, 0)};
  const std::size_t terms = codes.size() / count;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t o = i / terms;
    sums.sum[o] += codes[i];
    sums.magnitude[o] += std::abs(int{codes[i]});
  }
  return sums;
}

}  // namespace

std::int64_t c_unpacked_bytes(std::int64_t terms, int bits) {
  const std::int64_t per_byte = c_codes_per_byte(bits);
  if (per_byte == 1) return 0;  // they are read where they are
  if (terms % per_byte == 0) return terms;
  return (terms + 2 * (per_byte - 1)) / per_byte * per_byte;
}

std::string c_weights(CNodes& nodes, std::span<const std::int8_t> codes, int bits,
                      bool of_two_places) {
  const std::string packed = packed_codes(codes, 8 / c_codes_per_byte(bits));
  return nodes.array(std::span(reinterpret_cast<const std::int8_t*>(packed.data()), packed.size()),
                     of_two_places);
}

std::vector<std::int32_t> c_biases(const CNodes& nodes, const Node& node,
                                   std::span<const std::int8_t> codes, bool plain) {
  const Weights& weights = *node.weights;
  const WeightSums sums = weight_sums(codes, weights.weight.dim(0));
  const std::int64_t zero_point = plain ? 0 : nodes.input_quantization(node).zero_point;
  std::vector<std::int32_t> result;
  for (std::int64_t o = 0; o < weights.weight.dim(0); ++o) {
    const auto at = static_cast<std::size_t>(o);
    const std::int64_t bias = weights.bias.defined() ? weights.bias.data<std::int32_t>()[o] : 0;
    const std::int64_t most = std::abs(bias) + 256 * sums.magnitude[at];
    expect(most <= INT32_MAX, node, "its sums can overflow int32 in C");
    result.push_back(static_cast<std::int32_t>(bias - zero_point * sums.sum[at]));
  }
  return result;
}

bool shares_weights(const Graph& graph, const Node& node) {
  const auto module_of = [](const Node& of) { return of.name.substr(0, of.name.find('#')); };
  const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
    return other.weights && module_of(other) == module_of(node) &&
           home_of_weights(graph, other) == home_of_weights(graph, node);
  });
  return &*first != &node;
}

CFields c_windows(const CNodes& nodes, const Node& node, const Conv2dGeometry& conv) {
  const Shape& weight = node.weights->weight.shape();
  const Shape& in = nodes.graph().values[node.inputs[0]].shape;
  const Shape& out = nodes.graph().values[node.output].shape;
  CFields fields;
  fields.set("in_h", in[0]).set("in_w", in[1]).set("in_c", in[2]);
  fields.set("out_h", out[0]).set("out_w", out[1]).set("out_c", out[2]);
  fields.set("kernel_h", weight[2]).set("kernel_w", weight[3]);
  fields.set("stride_h", conv.stride[0]).set("stride_w", conv.stride[1]);
  fields.set("pad_h", conv.padding[0]).set("pad_w", conv.padding[1]);
  fields.set("dilation_h", conv.dilation[0]).set("dilation_w", conv.dilation[1]);
  fields.set("group_in", weight[1]).set("group_out", weight[0] / conv.groups);
  return fields;
}

void set_c_range(CFields& fields, const Quantization& q, kernels::Activation activation) {
  const kernels::CodeRange left =
      kernels::activation_code_range(activation, q.range, q.scale, q.zero_point, q.rounding);
  fields.set("least", left.qmin).set("most", left.qmax);
}

void add_c_product(CNodes& nodes, const Node& node, CProduct product) {
  const Weights& weights = *node.weights;
  const auto outputs = static_cast<std::size_t>(weights.weight.dim(0));
  std::vector<std::int32_t> multipliers(outputs);
  std::vector<std::int8_t> shifts(outputs);
  const std::vector<kernels::FixedMultiplier> factors = fixed_factors(nodes.graph(), node);
  for (std::size_t o = 0; o < outputs; ++o) {
    const kernels::FixedMultiplier& factor = factors[factors.size() == 1 ? 0 : o];
    multipliers[o] = factor.multiplier;
    shifts[o] = static_cast<std::int8_t>(std::min(factor.shift, 31));
  }
  CFields fields;
  fields
      .set("weight",
           c_weights(nodes, product.codes, weights.bits, shares_weights(nodes.graph(), node)))
      .set("bias", nodes.array(c_biases(nodes, node, product.codes, product.plain_bias)))
      .set("multiplier", nodes.array(multipliers))
      .set("shift", nodes.array(shifts));
  for (const auto& [member, value] : product.fields.list()) fields.set(member.c_str(), value);
  const Quantization& q = nodes.output_quantization(node);
  fields.set("in_zero", nodes.input_quantization(node).zero_point).set("out_zero", q.zero_point);
  set_c_range(fields, q, node.activation);
  nodes.call(c_kernel_for(product.kernel, weights.bits), "product", node, fields);
  nodes.use_scratch(node,
                    c_unpacked_bytes(weights.weight.size() / weights.weight.dim(0), weights.bits));
}

}  // namespace steelyard::deploy
