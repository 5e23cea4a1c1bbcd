// Joins values along the last dimension; their other dimensions are equal.
#include <algorithm>
#include <array>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  Shape joined = graph.values[node.inputs[0]].shape;
  expect(!joined.empty(), node, "expected inputs with channels or features");
  joined.back() = 0;
  for (const std::size_t input : node.inputs) {
    const Shape& part = graph.values[input].shape;
    expect(part.size() == joined.size() && std::equal(part.begin(), part.end() - 1, joined.begin()),
           node, "its inputs differ in more than the last dimension");
    joined.back() += part.back();
  }
  return joined;
}

void check(const Graph& graph, const Node& node) {
  for (const std::size_t input : node.inputs) {
    expect(!graph.values[node.output].quantization || graph.values[input].quantization, node,
           "a quantized join needs quantized operands");
  }
}

// Input `part`, on the output's grid or as floats, at `first` of every row of the output.
void join_part(const Operands& op, std::size_t part, std::int64_t first) {
  const Tensor real = dequantized(op.input_value(part), op.input(part));
  const Tensor& out = op.output();
  const std::int64_t width = real.dim(-1);
  const auto& q = op.output_value().quantization;
#pragma omp parallel for
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const std::int64_t to = i / width * out.dim(-1) + first + i % width;
    const float x = real.data<float>()[i];
    if (q) {
      set_code(out, to, kernels::quantize_value(x, grid_of(*q)));
    } else {
      out.data<float>()[to] = x;
    }
  }
}

void reference(const Operands& op) {
  std::int64_t first = 0;
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    join_part(op, part, first);
    first += op.input(part).dim(-1);
  }
}

// The output's code of every byte that can be a code of the input.
std::array<std::int8_t, 256> code_table(const Quantization& in, const Quantization& out) {
  std::array<std::int8_t, 256> table{};
  const auto grid = kernels::make_affine(out.range, out.scale, out.zero_point);
  for (int byte = 0; byte < 256; ++byte) {
    const int code = in.dtype == DType::kI8 ? static_cast<std::int8_t>(byte) : byte;
    const float real = kernels::dequantize_code(static_cast<float>(code),
                                                static_cast<float>(in.zero_point), in.scale);
    table[static_cast<std::size_t>(byte)] =
        static_cast<std::int8_t>(kernels::quantize_value(real, grid));
  }
  return table;
}

bool fast(const Operands& op) {
  if (!op.output_value().quantization || op.output_value().quantization->wide()) return false;
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    if (op.input_value(part).quantization->wide()) return false;
  }
  const Quantization& q = *op.output_value().quantization;
  const std::int64_t width = op.output().dim(-1);
  auto* to = static_cast<std::int8_t*>(op.output().raw());
  for (std::size_t part = 0; part < op.node.inputs.size(); ++part) {
    const Tensor& x = op.input(part);
    const auto table = code_table(*op.input_value(part).quantization, q);
    const auto* codes = static_cast<const std::uint8_t*>(x.raw());
    const std::int64_t columns = x.dim(-1);
    for (std::int64_t i = 0; i < x.size(); ++i)
      to[i / columns * width + i % columns] = table[codes[i]];
    to += columns;
  }
  return true;
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(nodes.input(node, i));
  const std::size_t rank = nodes.graph().values[node.output].shape.size();
  const std::size_t axis = rank == 3 ? 1 : rank;  // an image's channels, else the last
  nodes.onnx().add("Concat", parts, output, {{"axis", static_cast<std::int64_t>(axis)}});
}

}  // namespace

OpInfo concat_op() {
  return {.op = Op::kConcat,
          .name = "concat",
          .recorded = {"quantized_concat", "concat"},
          .inputs = 0,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast,
          .onnx = onnx};
}

}  // namespace steelyard::deploy
