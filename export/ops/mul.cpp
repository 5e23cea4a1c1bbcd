// The product of two values whose shapes broadcast.
#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& a = graph.values[node.inputs[0]].shape;
  const Shape& b = graph.values[node.inputs[1]].shape;
  expect(a.size() == b.size(), node, "its inputs differ in rank");
  Shape product = a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    expect(a[i] == b[i] || a[i] == 1 || b[i] == 1, node, "its inputs' shapes do not broadcast");
    if (a[i] == 1) product[i] = b[i];
  }
  return product;
}

void check(const Graph& graph, const Node& node) {
  if (!graph.values[node.output].quantization) return;
  expect(graph.values[node.inputs[0]].quantization && graph.values[node.inputs[1]].quantization,
         node, "a quantized product needs quantized operands");
  require_bytes(graph, node);
  const auto& second = graph.values[node.inputs[1]].quantization;
  expect(!second->wide(), node, "has codes of at most 8 bits");
}

// Where element i of the output lies in an operand: sizes of 1 repeat.
class OperandIndex {
 public:
  OperandIndex(const Tensor& operand, const Tensor& output) {
    std::int64_t stride = 1;
    for (std::int64_t axis = output.rank(); axis-- > 0; stride *= operand.dim(axis)) {
      sizes_.push_back(output.dim(axis));
      strides_.push_back(operand.dim(axis) == 1 ? 0 : stride);
    }
  }
  std::int64_t operator()(std::int64_t i) const {
    std::int64_t at = 0;
    for (std::size_t k = 0; k < sizes_.size(); ++k) {  // from the last dimension on
      at += i % sizes_[k] * strides_[k];
      i /= sizes_[k];
    }
    return at;
  }

 private:
  std::vector<std::int64_t> sizes_, strides_;
};

void reference(const Operands& op) {
  const OperandIndex at_a(op.input(0), op.output()), at_b(op.input(1), op.output());
  const auto& out = op.output_value().quantization;
  if (!out) {
    const Tensor a = dequantized(op.input_value(0), op.input(0));
    const Tensor b = dequantized(op.input_value(1), op.input(1));
    return fill_floats(op.output(), [&](std::int64_t i) {
      return a.data<float>()[at_a(i)] * b.data<float>()[at_b(i)];
    });
  }
  const Quantization& of_a = *op.input_value(0).quantization;
  const Quantization& of_b = *op.input_value(1).quantization;
  const float ratio = of_a.scale * of_b.scale / out->scale;
  const kernels::Affine<float> units = kernels::make_affine(out->range, 1.0F, out->zero_point);
  fill_codes(op.output(), [&](std::int64_t i) {
    const std::int32_t product = (code_at(op.input(0), at_a(i)) - of_a.zero_point) *
                                 (code_at(op.input(1), at_b(i)) - of_b.zero_point);
    return kernels::quantize_value(static_cast<float>(product) * ratio, units);
  });
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Mul", {nodes.input(node, 0), nodes.input(node, 1)}, output);
}

}  // namespace

OpInfo mul_op() {
  return {.op = Op::kMul,
          .name = "mul",
          .recorded = {"quantized_mul", "mul"},
          .inputs = 2,
          .shape = shape,
          .check = check,
          .reference = reference,
          .onnx = onnx};
}

}  // namespace steelyard::deploy
