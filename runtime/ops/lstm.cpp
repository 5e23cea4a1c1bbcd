// Long short-term memory over a sequence, in float.
#include <algorithm>
#include <cmath>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/runtime/ops/recurrent.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

using enum lstm::Operand;

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 2 && in[0] >= 1, node, "expected a sequence [L, I], got " + shape_string(in));
  const Tensor* recurrent = constant_at(node, kRecurrent);
  expect(
      recurrent != nullptr && recurrent->rank() == 2 && recurrent->dim(0) == 4 * recurrent->dim(1),
      node, "expected constant recurrent weights [4 H, H]");
  const std::int64_t units = recurrent->dim(1);
  const Shape shapes[] = {{},     {4 * units, in[1]}, {4 * units, units}, {4 * units}, {units},
                          {units}};
  for (std::size_t place = kWeight; place < kOperands; ++place) {
    const Tensor* constant = constant_at(node, place);
    expect(constant != nullptr && constant->shape() == shapes[place], node,
           "expected a constant " + shape_string(shapes[place]) + " as operand " +
               std::to_string(place));
  }
  return {in[0] + (node.as<LstmOptions>().final_cell ? 1 : 0), units};
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, kInput);
  const Node& node = op.node;
  const std::int64_t length = x.dim(1), features = x.dim(2), units = recurrent_units(node);
  const auto constant = [&](std::size_t place) { return constant_at(node, place)->data<float>(); };
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  const std::int64_t rows = op.output().dim(1);
  kernels::parallel_for(x.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::vector<float> h(constant(kOutput), constant(kOutput) + units), next(h);
      std::vector<float> c(constant(kCell), constant(kCell) + units);
      float* y = op.output().data<float>() + n * rows * units;
      for (std::int64_t step = 0; step < length; ++step) {
        const std::int64_t t = node.as<LstmOptions>().reverse ? length - 1 - step : step;
        const float* in = x.data<float>() + (n * length + t) * features;
        for (std::int64_t j = 0; j < units; ++j) {
          double sums[4];
          for (std::int64_t gate = 0; gate < 4; ++gate) {
            const std::int64_t row = gate * units + j;
            sums[gate] = dot(constant(kWeight) + row * features, in, features) +
                         dot(constant(kRecurrent) + row * units, h.data(), units) +
                         double{constant(kBias)[row]};
          }
          const auto at = static_cast<std::size_t>(j);
          c[at] = static_cast<float>(sigmoid(sums[2]) * double{c[at]} +
                                     sigmoid(sums[0]) * std::tanh(sums[3]));
          next[at] = static_cast<float>(sigmoid(sums[1]) * std::tanh(double{c[at]}));
        }
        h = next;
        std::copy(h.begin(), h.end(), y + t * units);
      }
      if (node.as<LstmOptions>().final_cell) std::copy(c.begin(), c.end(), y + length * units);
    }
  });
}

}  // namespace

OpInfo lstm_op() {
  return {.op = Op::kLstm,
          .name = "lstm",
          .inputs = kOperands,
          .takes_constants = true,
          .rounds_floats = true,
          .options = LstmOptions{},
          .graph_version = 6,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
