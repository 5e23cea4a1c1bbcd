// Rows of a table of floats, or of codes with a scale for each row, at the whole numbers that the
// input holds, as floats.
#include <fmt/core.h>

#include <cmath>

#include "steelyard/kernels/affine.h"
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// [rows, width].
const Shape* table_shape(const Node& node) {
  if (node.weights) return &node.weights->weight.shape();
  const Tensor* table = constant_at(node, 1);
  return table != nullptr ? &table->shape() : nullptr;
}

Shape shape(const Graph& graph, const Node& node) {
  const Shape* table = table_shape(node);
  expect(node.inputs.size() == 1 && table != nullptr && table->size() == 2 &&
             node.constants.empty() == node.weights.has_value(),
         node, "expected numbers of rows and a constant table [rows, width]");
  Shape out = graph.values[node.inputs[0]].shape;
  out.push_back(table->at(1));
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
  if (!node.weights) return;
  check_weights(graph, node);
  const Weights& table = *node.weights;
  expect(table.product == ProductKind::kFloat && table.has_codes() && !table.bias.defined() &&
             !table.has_groups(),
         node, "its table has codes with a scale for each row");
}

int version_of_codes_of_rows(const Graph&, const Node& node) { return node.weights ? 17 : 0; }

float value_at(const Node& node, std::int64_t row, std::int64_t column) {
  if (!node.weights) {
    const Tensor& table = *constant_at(node, 1);
    return table.data<float>()[row * table.dim(1) + column];
  }
  const Weights& table = *node.weights;
  const auto of = static_cast<std::size_t>(row);
  const std::int8_t code = table.weight.data<std::int8_t>()[row * table.weight.dim(1) + column];
  return kernels::dequantize_code(static_cast<float>(code),
                                  static_cast<float>(table.zero_point(of)), table.scales[of]);
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const std::int64_t rows = table_shape(op.node)->at(0), width = table_shape(op.node)->at(1);
  for (const float value : x.span<float>()) {
    const float row = std::nearbyint(value);
    if (row >= 0 && row < static_cast<float>(rows)) continue;
    throw std::out_of_range(fmt::format("[embedding] {}: expected indices in [0, {}), got {}",
                                        op.node.name, rows, value));
  }
  fill_floats(op.output(), [&](std::int64_t i) {
    const auto row = static_cast<std::int64_t>(std::nearbyint(x.data<float>()[i / width]));
    return value_at(op.node, row, i % width);
  });
}

}  // namespace

OpInfo embedding_op() {
  return {.op = Op::kEmbedding,
          .name = "embedding",
          .inputs = 2,
          .optional = 1,
          .takes_constants = true,
          .may_have_weights = true,
          .graph_version = 5,
          .later_version = version_of_codes_of_rows,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
