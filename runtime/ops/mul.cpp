// The product of two values whose shapes broadcast, or of one and a constant.
#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/runtime/ops/arithmetic.h"
#include "steelyard/runtime/ops/rows.h"

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
  if (out->fixed_point()) {
    const kernels::FixedMultiplier factor =
        kernels::fixed_mul(of_a.scale, of_b.scale, out->scale, out->rounding);
    return fill_codes(op.output(), [&](std::int64_t i) {
      const std::int32_t product = (code_at(op.input(0), at_a(i)) - of_a.zero_point) *
                                   (code_at(op.input(1), at_b(i)) - of_b.zero_point);
      return clamped_code(op, kernels::fixed_code(product, factor, out->zero_point, out->rounding));
    });
  }
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

}  // namespace

OpInfo mul_op() {
  return {.op = Op::kMul,
          .name = "mul",
          .inputs = 2,
          .takes_constants = true,
          .fixed_point = true,
          .graph_version = 4,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
