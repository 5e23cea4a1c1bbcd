// Operations that move elements of a sample without changing them, floats or codes: other shapes
// and orders, parts, borders.
#include <algorithm>
#include <limits>

#include "steelyard/export/c/c_move.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/ops/moves/slice.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/moves.h"

namespace steelyard::deploy {
namespace {

using List = std::vector<std::int64_t>;

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

OpForm reshape_form() {
  return {.op = Op::kReshape,
          .recorded = {"quantized_reshape", "reshape"},
          .refusal = reshape_refusal,
          .read = read_shape,
          .onnx = reshape_onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .tflite = [](TfliteNodes& nodes,
                       const Node& node) { add_tflite_reshape(nodes, node, nodes.input(node)); },
          .c = [](CNodes& nodes, const Node& node) { nodes.keep(node); }};
}

OpForm permute_form() {
  return {.op = Op::kPermute,
          .recorded = {"quantized_permute", "permute"},
          .refusal = permute_refusal,
          .read = read_order,
          .onnx = permute_onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .tflite = permute_tflite,
          .c = permute_c};
}

OpForm slice_form() {
  return {.op = Op::kSlice,
          .recorded = {"quantized_slice", "slice"},
          .refusal = slice_refusal,
          .read = read_parts,
          .onnx = slice_onnx,
          .tflite = slice_tflite,
          .c = slice_c};
}

OpForm pad_form() {
  return {.op = Op::kPad,
          .recorded = {"quantized_pad", "pad"},
          .refusal = pad_refusal,
          .read = read_border,
          .onnx = pad_onnx,
          .tflite = pad_tflite,
          .c = pad_c};
}

}  // namespace steelyard::deploy
