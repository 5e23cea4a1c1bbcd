// Gated recurrent unit over a sequence, in float.
#include <algorithm>
#include <cmath>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/runtime/ops/recurrent.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

using enum gru::Operand;

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 2 && in[0] >= 1, node, "expected a sequence [L, I], got " + shape_string(in));
  const Tensor* recurrent = constant_at(node, kRecurrent);
  expect(
      recurrent != nullptr && recurrent->rank() == 2 && recurrent->dim(0) == 3 * recurrent->dim(1),
      node, "expected constant recurrent weights [3 H, H]");
  const std::int64_t units = recurrent->dim(1);
  const Shape shapes[] = {{},     {3 * units, in[1]}, {3 * units, units}, {3 * units}, {units},
                          {units}};
  for (std::size_t place = kWeight; place < kOperands; ++place) {
    const Tensor* constant = constant_at(node, place);
    expect(constant != nullptr && constant->shape() == shapes[place], node,
           "expected a constant " + shape_string(shapes[place]) + " as operand " +
               std::to_string(place));
  }
  return {in[0], units};
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
  kernels::parallel_for(x.dim(0), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      std::vector<float> h(constant(kOutput), constant(kOutput) + units), next(h);
      float* y = op.output().data<float>() + n * length * units;
      for (std::int64_t step = 0; step < length; ++step) {
        const std::int64_t t = node.as<GruOptions>().reverse ? length - 1 - step : step;
        const float* in = x.data<float>() + (n * length + t) * features;
        for (std::int64_t j = 0; j < units; ++j) {
          double of_input[3], of_state[3];
          for (std::int64_t gate = 0; gate < 3; ++gate) {
            const std::int64_t row = gate * units + j;
            of_input[gate] = dot(constant(kWeight) + row * features, in, features) +
                             double{constant(kBias)[row]};
            of_state[gate] = dot(constant(kRecurrent) + row * units, h.data(), units);
          }
          const double update = sigmoid(of_input[0] + of_state[0]);
          const double reset = sigmoid(of_input[1] + of_state[1]);
          const double product = of_state[2] + double{constant(kRecurrentBias)[j]};
          const auto at = static_cast<std::size_t>(j);
          next[at] = static_cast<float>((1 - update) * std::tanh(of_input[2] + reset * product) +
                                        update * double{h[at]});
        }
        h = next;
        std::copy(h.begin(), h.end(), y + t * units);
      }
    }
  });
}

}  // namespace

OpInfo gru_op() {
  return {.op = Op::kGru,
          .name = "gru",
          .inputs = kOperands,
          .takes_constants = true,
          .rounds_floats = true,
          .options = GruOptions{},
          .graph_version = 12,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
