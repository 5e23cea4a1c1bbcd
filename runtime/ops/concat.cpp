// Joins values along a dimension, the last one for codes; their other dimensions are equal.
#include "steelyard/runtime/ops/concat.h"

#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/runtime/ops/fixed_activations.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

std::size_t axis_of(const Graph& graph, const Node& node) {
  const std::int64_t rank = std::ssize(graph.values[node.inputs[0]].shape);
  expect(rank > 0, node, "expected inputs with channels or features");
  const std::int64_t axis = node.as<JoinedAxis>().axis;
  expect(axis >= -1 && axis < rank, node, "its dimension is not one of its inputs'");
  return static_cast<std::size_t>(axis < 0 ? rank - 1 : axis);
}

std::int64_t row_size(const Shape& shape, std::size_t axis) {
  return shape_size({shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()});
}

CodeTable code_table(const Quantization& in, const Quantization& out) {
  if (out.fixed_point()) {
    const auto factor = kernels::fixed_rescale(in.scale, out.scale, out.rounding);
    return code_table_of(in, out, [&](std::int32_t x) {
      return kernels::fixed_code(x, factor, out.zero_point, out.rounding);
    });
  }
  CodeTable table{};
  const auto grid = kernels::make_code_grid(out.range, out.scale, out.zero_point);
  for (int byte = 0; byte < 256; ++byte) {
    const int code = in.dtype == DType::kI8 ? static_cast<std::int8_t>(byte) : byte;
    const float real = kernels::dequantize_code(static_cast<float>(code),
                                                static_cast<float>(in.zero_point), in.scale);
    table[static_cast<std::size_t>(byte)] =
        static_cast<std::int8_t>(kernels::quantize_value(real, grid));
  }
  return table;
}

namespace {

// Joins of other dimensions than the last.
int version_of_axis(const Graph&, const Node& node) {
  return node.as<JoinedAxis>().axis != -1 ? 5 : 0;
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
    const std::int64_t columns = x.dim(-1), rows = columns == 0 ? 0 : x.size() / columns;
#pragma omp parallel for if (x.size() >= kElementsForThreads)
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::uint8_t* const from = codes + row * columns;
      for (std::int64_t i = 0; i < columns; ++i) to[row * width + i] = table[from[i]];
    }
    to += columns;
  }
  return true;
}

}  // namespace

OpInfo concat_op() {
  return {.op = Op::kConcat,
          .name = "concat",
          .inputs = 0,
          .fixed_point = true,
          .options = JoinedAxis{},
          .later_version = version_of_axis,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
