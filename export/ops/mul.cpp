// The product of two values whose shapes broadcast, or of one and a constant.
#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  expect(node.constants.empty() && graph.values[node.inputs[0]].quantization &&
             graph.values[node.inputs[1]].quantization,
         node, "a quantized product needs quantized operands");
  require_bytes(graph, node);
  const auto& second = graph.values[node.inputs[1]].quantization;
  expect(!second->wide(), node, "has codes of at most 8 bits");
}

void reference(const Operands& op) {
  const auto& out = op.output_value().quantization;
  if (!out) return combine_floats(op, [](float a, float b) { return a * b; });
  const OperandIndex at_a(op.input(0), op.output()), at_b(op.input(1), op.output());
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  const float ratio = of_a.scale * of_b.scale / out->scale;
  // QLinearMul adds the zero point of the unsigned byte in float, and then rounds.
  const std::int32_t shift = out->dtype == DType::kI8 ? 128 : 0;
  const auto zero_point = static_cast<float>(out->zero_point + shift);
  const kernels::Affine<float> bytes = kernels::make_affine(out->range, 1.0F, -shift);
  fill_codes(op.output(), [&](std::int64_t i) {
    const std::int32_t product = (code_at(op.input(0), at_a(i)) - of_a.zero_point) *
                                 (code_at(op.input(1), at_b(i)) - of_b.zero_point);
    return kernels::quantize_value(static_cast<float>(product) * ratio + zero_point, bytes);
  });
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  add_arithmetic(nodes, node, "Mul", output);
}

}  // namespace

OpInfo mul_op() {
  return {.op = Op::kMul,
          .name = "mul",
          .recorded = {"quantized_mul", "mul"},
          .inputs = 2,
          .takes_constants = true,
          .graph_version = 4,
          .in_c_header = true,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference,
          .onnx = onnx};
}

}  // namespace steelyard::deploy
