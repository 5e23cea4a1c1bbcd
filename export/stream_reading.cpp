#include "steelyard/export/stream_reading.h"

#include <algorithm>

#include "steelyard/runtime/ops/concat.h"

namespace steelyard::deploy {
namespace {

constexpr std::size_t kSides = 2;  // dimensions of an image before its channels

StreamReading refused(const char* why) { return {.refusal = why}; }

StreamReading of_window(std::size_t axis, std::int64_t stride, std::int64_t padding,
                        std::int64_t reach) {
  return {.axis = axis, .stride = stride, .before = padding, .reach = reach};
}

StreamReading of_convolution(const Node& node, std::size_t axis) {
  if (axis >= kSides) return {.whole = true};
  const auto& conv = node.as<Conv2dGeometry>();
  const std::int64_t kernel = node.weights->weight.shape()[2 + axis];
  return of_window(axis, conv.stride[axis], conv.padding[axis], (kernel - 1) * conv.dilation[axis]);
}

StreamReading of_transposed(const Node& node, std::size_t axis) {
  if (axis >= kSides) return {.whole = true};
  const Conv2dGeometry& conv = node.as<ConvTranspose2dGeometry>().conv;
  const bool moves = node.weights->weight.shape()[2 + axis] > 1 || conv.stride[axis] > 1;
  return moves ? refused("a transposed convolution spreads frames along time")
               : StreamReading{.axis = axis};
}

StreamReading of_pool(const Node& node, std::size_t axis) {
  if (axis >= kSides) return {.axis = axis};
  const auto& pool = node.as<Pool2dGeometry>();
  return of_window(axis, pool.stride[axis], pool.padding[axis], pool.kernel[axis] - 1);
}

// Time stays a dimension where as many elements lie before it as before.
StreamReading of_reshape(const Shape& in, const Shape& out, std::size_t axis) {
  std::int64_t before = 1;
  for (std::size_t d = 0; d < axis; ++d) before *= in[d];
  for (std::size_t d = 0; d < out.size(); ++d) {
    if (before == 1 && out[d] == in[axis]) return {.axis = d};
    if (out[d] == 0 || before % out[d] != 0) break;
    before /= out[d];
  }
  return {.whole = true};
}

StreamReading of_slice(const Node& node, std::size_t axis) {
  const auto& [first, steps] = node.as<Positions>();
  if (steps[axis] < 1) return refused("it turns time around");
  return of_window(axis, steps[axis], -first[axis], 0);
}

StreamReading of_permute(const Node& node, std::size_t axis) {
  const auto& order = node.as<AxisOrder>().order;
  const auto found = std::find(order.begin(), order.end(), static_cast<std::int64_t>(axis));
  return {.axis = static_cast<std::size_t>(found - order.begin())};
}

// Values of which one may have fewer dimensions.
StreamReading of_broadcast(const Shape& in, const Shape& out, std::size_t axis) {
  const std::size_t to = axis + out.size() - in.size();
  return in[axis] == out[to] ? StreamReading{.axis = to}
                             : refused("it combines frames with a value of the whole window");
}

}  // namespace

StreamReading stream_reading(const Graph& graph, const Node& node, std::size_t i,
                             std::size_t axis) {
  const Shape& in = graph.values[node.inputs[i]].shape;
  const Shape& out = graph.values[node.output].shape;
  switch (node.op) {
    case Op::kConv2d:
      return of_convolution(node, axis);
    case Op::kConvTranspose2d:
      return of_transposed(node, axis);
    case Op::kMaxPool2d:
    case Op::kAvgPool2d:
      return of_pool(node, axis);
    case Op::kGlobalAvgPool:
      return axis < kSides ? StreamReading{.whole = true} : StreamReading{.axis = axis - kSides};
    case Op::kLinear:
    case Op::kSoftmax:
      return axis + 1 == in.size() ? StreamReading{.whole = true} : StreamReading{.axis = axis};
    case Op::kFlatten:
      return {.whole = true};
    case Op::kReshape:
      return of_reshape(in, out, axis);
    case Op::kPermute:
      return of_permute(node, axis);
    case Op::kSlice:
      return of_slice(node, axis);
    case Op::kPad:
      return of_window(axis, 1, node.as<Border>().before[axis], 0);
    case Op::kResize:
      return in[axis] == out[axis] ? StreamReading{.axis = axis}
                                   : refused("it repeats frames along time");
    case Op::kConcat:
      return axis == axis_of(graph, node) ? refused("it joins values along time")
                                          : StreamReading{.axis = axis};
    case Op::kAdd:
    case Op::kMul:
      return of_broadcast(in, out, axis);
    case Op::kQuantize:
    case Op::kRelu:
    case Op::kRelu6:
    case Op::kLeakyRelu:
    case Op::kSigmoid:
    case Op::kTanh:
    case Op::kHardswish:
      return {.axis = axis};
    case Op::kFixedLstm:
      return refused("its state depends on where a window begins, which in a stream moves");
    default:
      return refused("it has no form that is computed call by call");
  }
}

void unpad(Node& node, std::size_t axis) {
  if (node.op == Op::kConv2d) node.as<Conv2dGeometry>().padding[axis] = 0;
  if (node.op == Op::kMaxPool2d || node.op == Op::kAvgPool2d) {
    node.as<Pool2dGeometry>().padding[axis] = 0;
  }
  if (node.op == Op::kPad) node.as<Border>().before[axis] = 0;
}

}  // namespace steelyard::deploy
