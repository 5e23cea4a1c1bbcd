// The sum of two values of one shape.
#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/framework/describes.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/qat/quantized_value.h"

namespace steelyard::deploy {
namespace {

using kernels::Affine;

// Only the sum of codes has one.
void read(const Function& function, Node& node) {
  const auto* fused = dynamic_cast<const Describes<kernels::Activation>*>(&function);
  if (fused != nullptr) node.activation = fused->described();
}

Shape shape(const Graph& graph, const Node& node) {
  const Shape& a = graph.values[node.inputs[0]].shape;
  expect(graph.values[node.inputs[1]].shape == a, node, "its inputs differ in shape");
  return a;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization || (graph.values[node.inputs[0]].quantization &&
                                                     graph.values[node.inputs[1]].quantization),
         node, "a quantized sum needs quantized operands");
}

kernels::AddGrid add_grid(const Value& value) {
  const Quantization& q = *value.quantization;
  return {q.scale, static_cast<float>(q.zero_point), q.dtype == DType::kI8 ? -128.0F : 0.0F};
}

void reference(const Operands& op) {
  if (!op.output_value().quantization) {
    const Tensor a = dequantized(op.input_value(0), op.input(0));
    const Tensor b = dequantized(op.input_value(1), op.input(1));
    fill_floats(op.output(),
                [&](std::int64_t i) { return a.data<float>()[i] + b.data<float>()[i]; });
    return;
  }
  const Affine<float> grid = output_grid(op);
  const auto rule = kernels::make_add_requantizer(
      add_grid(op.input_value(0)), add_grid(op.input_value(1)), add_grid(op.output_value()));
  fill_codes(op.output(), [&](std::int64_t i) {
    const float a = static_cast<float>(code_at(op.input(0), i));
    const float b = static_cast<float>(code_at(op.input(1), i));
    return kernels::to_integer_code(kernels::requantized_add_code(a, b, rule), grid);
  });
}

bool fast(const Operands& op) {
  if (!op.output_value().quantization) return false;
  const Quantization& q = *op.output_value().quantization;
  const auto operand = [&](std::size_t i) {
    const Quantization& in = *op.input_value(i).quantization;
    return kernels::QuantizedOperand{&in.scale, &in.zero_point};
  };
  qat::visit_codes(op.input(0).dtype(), [&](auto* tag_a) {
    qat::visit_codes(op.input(1).dtype(), [&](auto* tag_b) {
      qat::visit_codes(q.dtype, [&](auto* tag) {
        using A = qat::CodeOf<decltype(tag_a)>;
        using B = qat::CodeOf<decltype(tag_b)>;
        using Y = qat::CodeOf<decltype(tag)>;
        kernels::run(kernels::RequantizeAdd<A, B, Y>{.n = op.output().size(),
                                                     .activation = op.node.activation,
                                                     .a = op.input(0).data<A>(),
                                                     .of_a = operand(0),
                                                     .b = op.input(1).data<B>(),
                                                     .of_b = operand(1),
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

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Add", {nodes.input(node, 0), nodes.input(node, 1)}, output);
}

}  // namespace

OpInfo add_op() {
  return {.op = Op::kAdd,
          .name = "add",
          .recorded = {"quantized_add", "add"},
          .inputs = 2,
          .fuses_activation = true,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast,
          .onnx = onnx};
}

}  // namespace steelyard::deploy
