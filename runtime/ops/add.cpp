// The sum of two values, or of one and a constant.
#include <fmt/core.h>

#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/runtime/ops/arithmetic.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

using kernels::CodeGrid;

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  expect(node.constants.empty() && graph.values[node.inputs[0]].quantization &&
             graph.values[node.inputs[1]].quantization,
         node, "a quantized sum needs quantized operands");
  const Quantization& out = *graph.values[node.output].quantization;
  if (!out.fixed_point()) return;
  const float a = graph.values[node.inputs[0]].quantization->scale;
  const float b = graph.values[node.inputs[1]].quantization->scale;
  expect(kernels::fixed_sum_factor(a, b, out.scale) < 1, node,
         fmt::format("the scales {} and {} of its operands are too large for the scale {} of its "
                     "sum in fixed point",
                     a, b, out.scale));
}

// The sum of two values in fixed point.
void fixed_reference(const Operands& op, const OperandIndex& at_a, const OperandIndex& at_b) {
  const Quantization& q = *op.output_value().quantization;
  const kernels::FixedAdd rule =
      kernels::make_fixed_add(grid_of(*op.input_value(0).quantization),
                              grid_of(*op.input_value(1).quantization), grid_of(q), q.rounding);
  fill_codes(op.output(), [&](std::int64_t i) {
    return clamped_code(
        op, kernels::fixed_add_code(code_at(op.input(0), at_a(i)), code_at(op.input(1), at_b(i)),
                                    rule, q.rounding));
  });
}

void fixed_fast(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  const Quantization& a = *op.input_value(0).quantization;
  const Quantization& b = *op.input_value(1).quantization;
  kernels::run(
      kernels::FixedRequantizeAdd{.n = op.output().size(),
                                  .rounding = q.rounding,
                                  .activation = op.node.activation,
                                  .a = {op.input(0).data<std::int8_t>(), &a.scale, &a.zero_point},
                                  .b = {op.input(1).data<std::int8_t>(), &b.scale, &b.zero_point},
                                  .scale = &q.scale,
                                  .zero_point = &q.zero_point,
                                  .range = q.range,
                                  .codes = op.output().data<std::int8_t>(),
                                  .mask = nullptr});
}

bool has_wide(const Operands& op) {
  return rounds_reals(*op.input_value(0).quantization, op.output_value().quantization) ||
         op.input_value(1).quantization->wide();
}

// With every code of the type.
CodeGrid<float> whole_grid(const Value& value) {
  const Quantization& q = *value.quantization;
  const auto type = q.dtype == DType::kI8 ? kernels::CodeType::kS8 : kernels::CodeType::kU8;
  return kernels::make_code_grid(kernels::whole_range(type), q.scale, q.zero_point);
}

void reference(const Operands& op) {
  if (!op.output_value().quantization) {
    return combine_floats(op, [](float a, float b) { return a + b; });
  }
  const OperandIndex at_a(op.input(0), op.output()), at_b(op.input(1), op.output());
  if (op.output_value().quantization->fixed_point()) return fixed_reference(op, at_a, at_b);
  if (has_wide(op)) {
    const Tensor a = dequantized(op.input_value(0), op.input(0));
    const Tensor b = dequantized(op.input_value(1), op.input(1));
    return fill_codes(op.output(), [&, grid = output_grid(op)](std::int64_t i) {
      return kernels::quantize_value(a.data<float>()[at_a(i)] + b.data<float>()[at_b(i)], grid);
    });
  }
  const CodeGrid<float> grid = output_grid(op);
  const auto rule = kernels::make_add_requantizer(
      whole_grid(op.input_value(0)), whole_grid(op.input_value(1)), whole_grid(op.output_value()));
  fill_codes(op.output(), [&](std::int64_t i) {
    const float a = static_cast<float>(code_at(op.input(0), at_a(i)));
    const float b = static_cast<float>(code_at(op.input(1), at_b(i)));
    return kernels::to_integer_code(kernels::requantized_add_code(a, b, rule), grid);
  });
}

bool fast(const Operands& op) {
  if (!op.output_value().quantization) return combine_fast<kernels::Total>(op);
  if (has_wide(op)) return false;
  if (op.input(0).shape() != op.input(1).shape()) return false;
  const Quantization& q = *op.output_value().quantization;
  if (q.fixed_point()) {
    fixed_fast(op);
    return true;
  }
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  visit_codes(op.input(0).dtype(), [&](auto* tag_a) {
    visit_codes(op.input(1).dtype(), [&](auto* tag_b) {
      visit_codes(q.dtype, [&](auto* tag) {
        using A = CodeOf<decltype(tag_a)>;
        using B = CodeOf<decltype(tag_b)>;
        using Y = CodeOf<decltype(tag)>;
        kernels::run(kernels::RequantizeAdd<A, B, Y>{
            .n = op.output().size(),
            .activation = op.node.activation,
            .a = {op.input(0).data<A>(), &of_a.scale, &of_a.zero_point},
            .b = {op.input(1).data<B>(), &of_b.scale, &of_b.zero_point},
            .scale = &q.scale,
            .zero_point = &q.zero_point,
            .range = q.range,
            .codes = op.output().data<Y>(),
            .mask = nullptr});
      });
    });
  });
  return true;
}

}  // namespace

OpInfo add_op() {
  return {.op = Op::kAdd,
          .name = "add",
          .inputs = 2,
          .takes_constants = true,
          .fuses_activation = true,
          .fixed_point = true,
          .shape = broadcast_shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
