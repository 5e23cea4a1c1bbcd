// Joins values along a dimension, the last one for codes; their other dimensions are equal.
#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/c_move.h"
#include "steelyard/export/ops/fixed_activations.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/ops/support.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/kernels/fixed_functions.h"

namespace steelyard::deploy {
namespace {

const Describes<std::int64_t>* float_join(const Function& function) {
  return dynamic_cast<const Describes<std::int64_t>*>(&function);
}

std::string refusal(const Function& function) {
  const auto* join = float_join(function);
  return join != nullptr && join->described() == 0 ? "over the batch" : "";
}

void read(const Function& function, Node& node) {
  const auto* join = float_join(function);
  const std::int64_t rank = std::ssize(function.inputs()[0]->shape);
  if (join != nullptr && join->described() + 1 < rank) {
    node.options = JoinedAxis{join->described() - 1};
  }
}

// Joins of other dimensions than the last.
int version_of_axis(const Graph&, const Node& node) {
  return node.as<JoinedAxis>().axis != -1 ? 5 : 0;
}

std::size_t axis_of(const Graph& graph, const Node& node) {
  const std::int64_t rank = std::ssize(graph.values[node.inputs[0]].shape);
  expect(rank > 0, node, "expected inputs with channels or features");
  const std::int64_t axis = node.as<JoinedAxis>().axis;
  expect(axis >= -1 && axis < rank, node, "its dimension is not one of its inputs'");
  return static_cast<std::size_t>(axis < 0 ? rank - 1 : axis);
}

// Elements from the joined dimension on, of one sample.
std::int64_t row_size(const Shape& shape, std::size_t axis) {
  return shape_size({shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()});
}

Shape shape(const Graph& graph, const Node& node) {
  Shape joined = graph.values[node.inputs[0]].shape;
  const std::size_t axis = axis_of(graph, node);
  joined[axis] = 0;
  for (const std::size_t input : node.inputs) {
    Shape part = graph.values[input].shape;
    expect(part.size() == joined.size(), node, "its inputs differ in rank");
    joined[axis] += part[axis];
    part[axis] = joined[axis];
    expect(part == joined, node, "its inputs differ in more than the joined dimension");
  }
  return joined;
}

void check(const Graph& graph, const Node& node) {
  expect(node.as<JoinedAxis>().axis == -1 || !graph.values[node.output].quantization, node,
         "joins codes along the last dimension");
  for (const std::size_t input : node.inputs) {
    expect(!graph.values[node.output].quantization || graph.values[input].quantization, node,
           "a quantized join needs quantized operands");
  }
}

// The output's code of every byte that can be a code of the input.
CodeTable code_table(const Quantization& in, const Quantization& out) {
  if (out.fixed_point()) {
    const auto factor = kernels::fixed_rescale(in.scale, out.scale, out.rounding);
    return code_table_of(in, out, [&](std::int32_t x) {
      return kernels::fixed_code(x, factor, out.zero_point, out.rounding);
    });
  }
  CodeTable table{};
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

// Input `part`, on the output's grid or as floats, at `first` of every row of the output.
void join_part(const Operands& op, std::size_t part, std::int64_t first) {
  const Tensor real = dequantized(op.input_value(part), op.input(part));
  const Tensor& out = op.output();
  const std::size_t axis = axis_of(op.graph, op.node);
  const std::int64_t width = row_size(op.input_value(part).shape, axis);
  const std::int64_t whole = row_size(op.output_value().shape, axis);
  const auto& q = op.output_value().quantization;
  CodeTable table{};
  const bool fixed = q && q->fixed_point();
  if (fixed) table = code_table(*op.input_value(part).quantization, *q);
#pragma omp parallel for
  for (std::int64_t i = 0; i < real.size(); ++i) {
    const std::int64_t to = i / width * whole + first + i % width;
    const float x = real.data<float>()[i];
    if (fixed) {
      set_code(out, to, table[static_cast<std::uint8_t>(code_at(op.input(part), i))]);
    } else if (q) {
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
    first += row_size(op.input_value(part).shape, axis_of(op.graph, op.node));
  }
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
  const std::int64_t axis = nodes.axis(node, axis_of(nodes.graph(), node));
  nodes.onnx().add("Concat", parts, output, {{"axis", axis}});
}

void tflite(TfliteNodes& nodes, const Node& node) {
  const Quantization& q = *nodes.graph().values[node.output].quantization;
  std::vector<std::int32_t> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    parts.push_back(nodes.input(node, i));
    if (nodes.input_quantization(node, i) == q) continue;
    const std::int32_t rescaled = nodes.computed(node.name + "/part" + std::to_string(i),
                                                 nodes.batch_shape(node.inputs[i]), q);
    nodes.add(TfliteOp::kQuantize, 2, {parts.back()}, rescaled, {.table = 89});
    parts.back() = rescaled;
  }
  const auto axis = static_cast<std::int32_t>(axis_of(nodes.graph(), node)) + 1;
  nodes.add(TfliteOp::kConcatenation, 2, parts, nodes.output(node),
            {.table = 10, .fields = {{0, 4, axis}}});
}

void c(CNodes& nodes, const Node& node) {
  const Graph& graph = nodes.graph();
  const std::size_t axis = axis_of(graph, node);
  const std::int64_t whole = row_size(graph.values[node.output].shape, axis);
  const Quantization& q = nodes.output_quantization(node);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Shape& part = graph.values[node.inputs[i]].shape;
    const std::int64_t width = row_size(part, axis), rows = shape_size(part) / width;
    add_c_move(nodes, node, node.inputs[i], {{rows, width, whole}, {width, 1, 1}}, 0, first);
    if (nodes.input_quantization(node, i) != q) {
      add_c_map(nodes, node, node.output, code_table(nodes.input_quantization(node, i), q),
                {rows, width, whole, first});
    }
    first += width;
  }
}

}  // namespace

OpInfo concat_op() {
  return {.op = Op::kConcat,
          .name = "concat",
          .recorded = {"quantized_concat", "concat"},
          .inputs = 0,
          .fixed_point = true,
          .options = JoinedAxis{},
          .later_version = version_of_axis,
          .in_c_header = true,
          .refusal = refusal,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast,
          .onnx = onnx,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
