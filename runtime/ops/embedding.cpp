// Rows of a table of floats at the whole numbers that the input holds, as floats.
#include <fmt/core.h>

#include <cmath>

#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Tensor* table = constant_at(node, 1);
  expect(node.inputs.size() == 1 && table != nullptr && table->rank() == 2, node,
         "expected numbers of rows and a constant table [rows, width]");
  Shape out = graph.values[node.inputs[0]].shape;
  out.push_back(table->dim(1));
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const Tensor& table = *constant_at(op.node, 1);
  const std::int64_t rows = table.dim(0), width = table.dim(1);
  for (const float value : x.span<float>()) {
    const float row = std::nearbyint(value);
    if (row >= 0 && row < static_cast<float>(rows)) continue;
    throw std::out_of_range(fmt::format("[embedding] {}: expected indices in [0, {}), got {}",
                                        op.node.name, rows, value));
  }
  fill_floats(op.output(), [&](std::int64_t i) {
    const auto row = static_cast<std::int64_t>(std::nearbyint(x.data<float>()[i / width]));
    return table.data<float>()[row * width + i % width];
  });
}

}  // namespace

OpInfo embedding_op() {
  return {.op = Op::kEmbedding,
          .name = "embedding",
          .inputs = 2,
          .takes_constants = true,
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
