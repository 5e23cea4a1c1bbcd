// Operations that move elements of a sample without changing them, floats or codes: other shapes
// and orders, parts, borders.
#include <algorithm>
#include <limits>
#include <numeric>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/c_move.h"
#include "steelyard/export/ops/moves.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

using List = std::vector<std::int64_t>;

const Shape& input_shape(const Graph& graph, const Node& node) {
  return graph.values[node.inputs[0]].shape;
}
const Shape& output_shape(const Graph& graph, const Node& node) {
  return graph.values[node.output].shape;
}

List strides_of(const Shape& shape) {
  List strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Calls f(dimension, position) for each dimension of element i.
template <typename F>
void for_each_position(std::int64_t i, const Shape& shape, const F& f) {
  for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) f(d, i % shape[d]);
}

// --- reshape

void reshape(const Operands& op) {
  move(op, 0, [](std::int64_t i) { return i; });
}

Shape reshaped(const Graph& graph, const Node& node) {
  std::int64_t size = 1;
  const Shape& to = node.as<NewShape>().shape;
  for (const std::int64_t dim : to) {
    expect(dim >= 0 && !__builtin_mul_overflow(size, dim, &size), node, "expected sizes");
  }
  expect(
      size == shape_size(input_shape(graph, node)), node,
      "cannot give " + shape_string(input_shape(graph, node)) + " the shape " + shape_string(to));
  return to;
}

std::string reshape_refusal(const Function& function) {
  const Shape to = described<Shape>(function);
  return !to.empty() && to[0] == function.inputs()[0]->shape[0] ? "" : "of the batch";
}

void read_shape(const Function& function, Node& node) {
  const Shape to = described<Shape>(function);
  node.options = NewShape{{to.begin() + 1, to.end()}};
}

Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Where dimensions of size 1 alone come or go, as around a convolution of sequences, the batch is
// ONNX's 0 (as before), so that the length may be free.
Shape onnx_shape(const Graph& graph, const Node& node) {
  Shape shape = node.as<NewShape>().shape;
  const Shape rest = without_ones(shape);
  const bool moves_ones = !rest.empty() && without_ones(input_shape(graph, node)) == rest;
  if (moves_ones) *std::find(shape.begin(), shape.end(), rest[0]) = -1;
  shape.insert(shape.begin(), moves_ones ? 0 : -1);
  return shape;
}

void reshape_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Shape shape = onnx_shape(nodes.graph(), node);
  const std::string to = nodes.onnx().int64s(node.name + "/shape", shape, {std::ssize(shape)});
  nodes.onnx().add("Reshape", {nodes.input(node), to}, output);
}

// --- permute

Shape permuted(const Graph& graph, const Node& node) {
  const Shape& in = input_shape(graph, node);
  const List& order = node.as<AxisOrder>().order;
  List sorted = order, all(in.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  expect(sorted == all, node, "expected a permutation of the dimensions of " + shape_string(in));
  Shape out;
  for (const std::int64_t d : order) out.push_back(in[static_cast<std::size_t>(d)]);
  return out;
}

void permute(const Operands& op) {
  const List strides = strides_of(op.input_value(0).shape);
  const Shape& out = op.output_value().shape;
  const List& order = op.node.as<AxisOrder>().order;
  move(op, 0, [&](std::int64_t i) {
    std::int64_t from = 0;
    for_each_position(i, out, [&](std::size_t d, std::int64_t at) {
      from += at * strides[static_cast<std::size_t>(order[d])];
    });
    return from;
  });
}

std::string permute_refusal(const Function& function) {
  return described<List>(function)[0] == 0 ? "" : "of the batch";
}

void read_order(const Function& function, Node& node) {
  const List order = described<List>(function);
  for (std::size_t i = 1; i < order.size(); ++i) {
    node.as<AxisOrder>().order.push_back(order[i] - 1);
  }
}

// From however the input is held.
void permute_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  List order{0};
  for (const std::int64_t d : node.as<AxisOrder>().order) {
    order.push_back(nodes.held_axis(node.inputs[0], static_cast<std::size_t>(d)));
  }
  nodes.onnx().add("Transpose", {nodes.read_by(node, node.inputs[0])}, output, {{"perm", order}});
}

std::int32_t tensor_of(TfliteNodes& nodes, const std::string& name,
                       const std::vector<std::int32_t>& positions) {
  return nodes.int32s(name, positions, {static_cast<std::int32_t>(positions.size())});
}

void permute_tflite(TfliteNodes& nodes, const Node& node) {
  List order = node.as<AxisOrder>().order;
  for (std::int64_t& d : order) ++d;
  nodes.add(TfliteOp::kTranspose, 2,
            {nodes.input(node), tensor_of(nodes, node.name + "/order", tflite_positions(0, order))},
            nodes.output(node), {.table = 26});
}

void permute_c(CNodes& nodes, const Node& node) {
  const Shape& out = output_shape(nodes.graph(), node);
  const List from = strides_of(input_shape(nodes.graph(), node)), to = strides_of(out);
  std::vector<CMoved> dims;
  for (std::size_t d = 0; d < out.size(); ++d) {
    dims.push_back({out[d], from[static_cast<std::size_t>(node.as<AxisOrder>().order[d])], to[d]});
  }
  add_c_move(nodes, node, node.inputs[0], dims);
}

// --- slice

Shape sliced(const Graph& graph, const Node& node) {
  const Shape& in = input_shape(graph, node);
  const Shape& out = output_shape(graph, node);
  const auto& [first, steps] = node.as<Positions>();
  expect(first.size() == in.size() && steps.size() == in.size() && out.size() == in.size(), node,
         "expected positions in each dimension of " + shape_string(in));
  for (std::size_t d = 0; d < in.size(); ++d) {
    std::int64_t last = 0;
    const bool fits =
        out[d] == 0 || (!__builtin_mul_overflow(out[d] - 1, steps[d], &last) &&
                        !__builtin_add_overflow(last, first[d], &last) && first[d] >= 0 &&
                        first[d] < in[d] && last >= 0 && last < in[d] && steps[d] != 0);
    expect(fits, node, "takes positions outside of " + shape_string(in));
  }
  return out;
}

void slice(const Operands& op) {
  const List strides = strides_of(op.input_value(0).shape);
  const Shape& out = op.output_value().shape;
  const Positions& taken = op.node.as<Positions>();
  move(op, 0, [&](std::int64_t i) {
    std::int64_t from = 0;
    for_each_position(i, out, [&](std::size_t d, std::int64_t at) {
      from += (taken.first[d] + at * taken.steps[d]) * strides[d];
    });
    return from;
  });
}

std::string slice_refusal(const Function& function) {
  const TakenAxis batch = described<std::vector<TakenAxis>>(function)[0];
  return batch == TakenAxis{0, function.inputs()[0]->shape[0], 1} ? "" : "of the batch";
}

void read_parts(const Function& function, Node& node) {
  const auto taken = described<std::vector<TakenAxis>>(function);
  for (std::size_t i = 1; i < taken.size(); ++i) {
    node.as<Positions>().first.push_back(taken[i].first);
    node.as<Positions>().steps.push_back(taken[i].step);
  }
}

void slice_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Shape& in = input_shape(nodes.graph(), node);
  const Shape& out = output_shape(nodes.graph(), node);
  const Positions& taken = node.as<Positions>();
  List starts, ends, axes, steps;
  for (std::size_t d = 0; d < in.size(); ++d) {
    if (out[d] == in[d] && taken.steps[d] == 1) continue;
    const std::int64_t end = taken.first[d] + out[d] * taken.steps[d];
    starts.push_back(taken.first[d]);
    // Negative ends count from the end.
    ends.push_back(end < 0 ? std::numeric_limits<std::int64_t>::min() : end);
    axes.push_back(nodes.axis(node, d));
    steps.push_back(taken.steps[d]);
  }
  const auto list = [&](const char* name, const List& values) {
    return nodes.onnx().int64s(node.name + name, values, {std::ssize(values)});
  };
  nodes.onnx().add("Slice",
                   {nodes.input(node), list("/starts", starts), list("/ends", ends),
                    list("/axes", axes), list("/steps", steps)},
                   output);
}

void slice_tflite(TfliteNodes& nodes, const Node& node) {
  const Shape& out = output_shape(nodes.graph(), node);
  const auto& [first, steps] = node.as<Positions>();
  std::vector<std::int32_t> inputs{
      nodes.input(node), tensor_of(nodes, node.name + "/begin", tflite_positions(0, first))};
  if (std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; })) {
    inputs.push_back(tensor_of(nodes, node.name + "/size", tflite_positions(1, out)));
    return nodes.add(TfliteOp::kSlice, 2, inputs, nodes.output(node), {.table = 48});
  }
  List ends;
  std::int32_t to_the_end = 0;  // a bit for each dimension whose end lies before its first position
  for (std::size_t d = 0; d < out.size(); ++d) {
    ends.push_back(first[d] + out[d] * steps[d]);
    if (ends[d] >= 0) continue;
    to_the_end |= 1 << (d + 1);
    ends[d] = 0;
  }
  inputs.push_back(tensor_of(nodes, node.name + "/end", tflite_positions(1, ends)));
  inputs.push_back(tensor_of(nodes, node.name + "/steps", tflite_positions(1, steps)));
  nodes.add(TfliteOp::kStridedSlice, 2, inputs, nodes.output(node),
            {.table = 32, .fields = {{1, 4, to_the_end}}});
}

void slice_c(CNodes& nodes, const Node& node) {
  const Shape& out = output_shape(nodes.graph(), node);
  const List from = strides_of(input_shape(nodes.graph(), node)), to = strides_of(out);
  const auto& [first, steps] = node.as<Positions>();
  std::vector<CMoved> dims;
  std::int64_t first_from = 0;
  for (std::size_t d = 0; d < out.size(); ++d) {
    dims.push_back({out[d], steps[d] * from[d], to[d]});
    first_from += first[d] * from[d];
  }
  add_c_move(nodes, node, node.inputs[0], dims, first_from);
}

// --- pad

Shape padded(const Graph& graph, const Node& node) {
  const Shape& in = input_shape(graph, node);
  const Shape& out = output_shape(graph, node);
  const List& before = node.as<Border>().before;
  expect(before.size() == in.size() && out.size() == in.size(), node,
         "expected a border of " + shape_string(in));
  for (std::size_t d = 0; d < in.size(); ++d) {
    expect(before[d] >= 0 && before[d] <= out[d] - in[d], node,
           "its border does not fit " + shape_string(out));
  }
  return out;
}

void check_border(const Graph& graph, const Node& node) {
  const double value = node.as<Border>().value;
  expect(!std::isnan(value) && (!graph.values[node.output].quantization || value == 0), node,
         "expected a border of 0 around codes, of a number around floats");
}

void pad(const Operands& op) {
  const Shape& in = op.input_value(0).shape;
  const List strides = strides_of(in);
  const Shape& out = op.output_value().shape;
  const Border& border = op.node.as<Border>();
  move(op, border.value, [&](std::int64_t i) {
    std::int64_t from = 0;
    bool inside = true;
    for_each_position(i, out, [&](std::size_t d, std::int64_t at) {
      const std::int64_t own = at - border.before[d];
      inside = inside && own >= 0 && own < in[d];
      from += own * strides[d];
    });
    return inside ? from : kBorder;
  });
}

std::string pad_refusal(const Function& function) {
  return described<Border>(function).before[0] == 0 ? "" : "of the batch";
}

void read_border(const Function& function, Node& node) {
  const Border border = described<Border>(function);
  constexpr double kMost = std::numeric_limits<double>::max();  // files hold finite numbers
  node.options = Border{.before = {border.before.begin() + 1, border.before.end()},
                        .value = std::clamp(border.value, -kMost, kMost)};
}

void pad_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Shape& in = input_shape(nodes.graph(), node);
  const Shape& out = output_shape(nodes.graph(), node);
  const std::size_t rank = in.size() + 1;
  const Border& border = node.as<Border>();
  List pads(2 * rank, 0);
  for (std::size_t d = 0; d < in.size(); ++d) {
    const auto axis = static_cast<std::size_t>(nodes.axis(node, d));
    pads[axis] = border.before[d];
    pads[rank + axis] = out[d] - in[d] - border.before[d];
  }
  const auto value = static_cast<float>(border.value);
  nodes.onnx().add(
      "Pad",
      {nodes.input(node), nodes.onnx().int64s(node.name + "/pads", pads, {std::ssize(pads)}),
       nodes.onnx().floats(node.name + "/border", {&value, 1}, {})},
      output);
}

void pad_tflite(TfliteNodes& nodes, const Node& node) {
  const Shape& in = input_shape(nodes.graph(), node);
  const Shape& out = output_shape(nodes.graph(), node);
  std::vector<std::int32_t> pads{0, 0};
  for (std::size_t d = 0; d < in.size(); ++d) {
    const std::int64_t before = node.as<Border>().before[d];
    pads.push_back(static_cast<std::int32_t>(before));
    pads.push_back(static_cast<std::int32_t>(out[d] - in[d] - before));
  }
  const std::int32_t paddings =
      nodes.int32s(node.name + "/paddings", pads, {static_cast<std::int32_t>(pads.size() / 2), 2});
  nodes.add(TfliteOp::kPad, 2, {nodes.input(node), paddings}, nodes.output(node), {.table = 22});
}

void pad_c(CNodes& nodes, const Node& node) {
  const Shape& in = input_shape(nodes.graph(), node);
  const Shape& out = output_shape(nodes.graph(), node);
  const List from = strides_of(in), to = strides_of(out);
  CFields border;
  border.set("count", shape_size(out)).set("code", nodes.output_quantization(node).zero_point);
  nodes.call_on(std::nullopt, "fill", "fill_node", node, border);
  std::vector<CMoved> dims;
  std::int64_t first_to = 0;
  for (std::size_t d = 0; d < in.size(); ++d) {
    dims.push_back({in[d], from[d], to[d]});
    first_to += node.as<Border>().before[d] * to[d];
  }
  add_c_move(nodes, node, node.inputs[0], dims, 0, first_to);
}

}  // namespace

OpInfo reshape_op() {
  return {.op = Op::kReshape,
          .name = "reshape",
          .recorded = {"quantized_reshape", "reshape"},
          .keeps_codes = true,
          .options = NewShape{},
          .graph_version = 5,
          .refusal = reshape_refusal,
          .read = read_shape,
          .shape = reshaped,
          .reference = reshape,
          .onnx = reshape_onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .tflite = [](TfliteNodes& nodes,
                       const Node& node) { add_tflite_reshape(nodes, node, nodes.input(node)); },
          .c = [](CNodes& nodes, const Node& node) { nodes.keep(node); }};
}

OpInfo permute_op() {
  return {.op = Op::kPermute,
          .name = "permute",
          .recorded = {"quantized_permute", "permute"},
          .keeps_codes = true,
          .options = AxisOrder{},
          .graph_version = 5,
          .refusal = permute_refusal,
          .read = read_order,
          .shape = permuted,
          .reference = permute,
          .onnx = permute_onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .tflite = permute_tflite,
          .c = permute_c};
}

OpInfo slice_op() {
  return {.op = Op::kSlice,
          .name = "slice",
          .recorded = {"quantized_slice", "slice"},
          .keeps_codes = true,
          .options = Positions{},
          .graph_version = 5,
          .refusal = slice_refusal,
          .read = read_parts,
          .shape = sliced,
          .reference = slice,
          .onnx = slice_onnx,
          .tflite = slice_tflite,
          .c = slice_c};
}

OpInfo pad_op() {
  return {.op = Op::kPad,
          .name = "pad",
          .recorded = {"quantized_pad", "pad"},
          .keeps_codes = true,
          .options = Border{},
          .graph_version = 5,
          .refusal = pad_refusal,
          .read = read_border,
          .shape = padded,
          .check = check_border,
          .reference = pad,
          .onnx = pad_onnx,
          .tflite = pad_tflite,
          .c = pad_c};
}

}  // namespace steelyard::deploy
