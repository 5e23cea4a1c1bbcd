// Long short-term memory over a sequence of codes in fixed point.
#include <algorithm>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/recurrent.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

constexpr std::int64_t kGates = 4;

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 2 && in[0] >= 1, node, "expected a sequence [L, I], got " + shape_string(in));
  const Shape &weight = node.weights->weight.shape(), &recurrent = node.recurrent->weight.shape();
  expect(recurrent.size() == 2 && recurrent[0] == kGates * recurrent[1] &&
             weight == Shape{recurrent[0], in[1]},
         node,
         "weights " + shape_string(weight) + " and recurrent ones " + shape_string(recurrent) +
             " do not fit the input " + shape_string(in));
  return {in[0], recurrent[1]};
}

void check(const Graph& graph, const Node& node) {
  const auto& out = graph.values[node.output].quantization;
  expect(out && out->fixed_point(), node, "has codes in fixed point");
  const Node recurrence = recurrence_of(node);
  for (const Node* product : {&node, &recurrence}) {
    check_weights(graph, *product);
    const std::vector<float>& scales = product->weights->scales;
    expect(product->weights->one_scale_per_channel() && product->weights->zero_points.empty() &&
               std::count(scales.begin(), scales.end(), scales.front()) == std::ssize(scales),
           node, "its weights have one scale, and no zero points");
  }
  expect(node.weights->bits == node.recurrent->bits, node, "its weights have as many bits");
  expect(node.weights->bias.defined() && !node.recurrent->bias.defined(), node,
         "has one bias, beside the weights of its input");
}

// The sums of weights of a unit's gates times codes less their zero point.
void add_products(const Tensor& weight, std::int64_t unit, const std::int8_t* codes,
                  std::int32_t zero_point, std::int32_t (&sums)[kGates]) {
  const std::int64_t terms = weight.dim(1), units = weight.dim(0) / kGates;
  for (std::int64_t gate = 0; gate < kGates; ++gate) {
    const std::int8_t* row = weight.data<std::int8_t>() + (gate * units + unit) * terms;
    std::int32_t sum = 0;
    for (std::int64_t k = 0; k < terms; ++k) sum += row[k] * (codes[k] - zero_point);
    sums[gate] += sum;
  }
}

void reference(const Operands& op) {
  const Quantization &in = *op.input_value(0).quantization, &out = *op.output_value().quantization;
  const Weights &weights = *op.node.weights, &recurrent = *op.node.recurrent;
  const std::int64_t length = op.output().dim(1), units = op.output().dim(2);
  const std::int64_t features = op.input(0).dim(2);
  const kernels::FixedLstm rule =
      kernels::make_fixed_lstm(in.scale, weights.scales.front(), recurrent.scales.front(),
                               out.scale, out.zero_point, out.rounding);
  kernels::parallel_for(op.output().dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::vector<std::int32_t> cell(static_cast<std::size_t>(units), 0);
      for (std::int64_t t = 0; t < length; ++t) {
        const std::int8_t* x = op.input(0).data<std::int8_t>() + (n * length + t) * features;
        std::int8_t* y = op.output().data<std::int8_t>() + (n * length + t) * units;
        for (std::int64_t u = 0; u < units; ++u) {
          std::int32_t of_input[kGates], of_state[kGates] = {};
          for (std::int64_t gate = 0; gate < kGates; ++gate) {
            of_input[gate] = weights.bias.data<std::int32_t>()[gate * units + u];
          }
          add_products(weights.weight, u, x, in.zero_point, of_input);
          if (t > 0) add_products(recurrent.weight, u, y - units, out.zero_point, of_state);
          std::int32_t& own = cell[static_cast<std::size_t>(u)];
          const auto unit = kernels::fixed_lstm_unit(rule, of_input, of_state, own, out.rounding);
          own = unit.cell;
          y[u] = static_cast<std::int8_t>(clamped_code(op, unit.code));
        }
      }
    }
  });
}

}  // namespace

OpInfo fixed_lstm_op() {
  return {.op = Op::kFixedLstm,
          .name = "fixed_lstm",
          .has_weights = true,
          .has_recurrent = true,
          .fixed_point = true,
          .graph_version = 16,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
