// The product of two values whose shapes broadcast, or of one and a constant.
#include "steelyard/kernels/fixed_point.h"
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
  const kernels::MulRequantizer mul = kernels::make_mul_requantizer(
      of_a.scale, of_b.scale, out->scale, out->zero_point, out->range, out->dtype == DType::kI8);
  fill_codes(op.output(), [&](std::int64_t i) {
    const std::int32_t product = (code_at(op.input(0), at_a(i)) - of_a.zero_point) *
                                 (code_at(op.input(1), at_b(i)) - of_b.zero_point);
    return kernels::requantized_mul_code(product, mul);
  });
}

bool fast(const Operands& op) {
  const auto& out = op.output_value().quantization;
  if (!out) return combine_fast<kernels::Product>(op);
  if (out->fixed_point() || !has_few_axes(op)) return false;
  const Tensor &a = op.input(0), &b = op.input(1);
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  if (of_a.wide()) return false;
  const Shape& shape = op.output().shape();
  const auto bytes_of = [](const Tensor& codes, const Quantization& q) {
    return kernels::BytesOf{static_cast<const std::uint8_t*>(codes.raw()), &q.scale, &q.zero_point,
                            q.dtype == DType::kI8};
  };
  kernels::run(kernels::MultiplyToCodes{.n = op.output().size(),
                                        .a = bytes_of(a, of_a),
                                        .at_a = ops::broadcast_index("mul", a.shape(), shape),
                                        .b = bytes_of(b, of_b),
                                        .at_b = ops::broadcast_index("mul", b.shape(), shape),
                                        .scale = &out->scale,
                                        .zero_point = &out->zero_point,
                                        .range = out->range,
                                        .is_signed = out->dtype == DType::kI8,
                                        .codes = static_cast<std::uint8_t*>(op.output().raw())});
  return true;
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
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
