// Sums and extremes over some dimensions of a sample, of floats.
#include <algorithm>
#include <cmath>
#include <limits>

#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

using List = std::vector<std::int64_t>;

bool is_reduced(const Node& node, std::size_t axis) {
  const List& dims = node.as<ReducedDims>().dims;
  return std::find(dims.begin(), dims.end(), static_cast<std::int64_t>(axis)) != dims.end();
}

// The shape of the results, with size 1 where the output keeps the dimensions, else without them.
Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const bool keeps = graph.values[node.output].shape.size() == in.size();
  Shape out;
  for (std::size_t axis = 0; axis < in.size(); ++axis) {
    if (!is_reduced(node, axis)) out.push_back(in[axis]);
    if (is_reduced(node, axis) && keeps) out.push_back(1);
  }
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
  const std::int64_t rank = std::ssize(graph.values[node.inputs[0]].shape);
  std::int64_t after = 0;
  for (const std::int64_t axis : node.as<ReducedDims>().dims) {
    expect(axis >= after && axis < rank, node, "expected dimensions of its input, in order");
    after = axis + 1;
  }
  expect(!node.as<ReducedDims>().dims.empty(), node, "expected dimensions of its input, in order");
}

// Calls f(element of the input, index of the output) in the input's order.
template <typename F>
void for_each_element(const Operands& op, const F& f) {
  const Tensor x = real_operand(op, 0);
  const Shape& in = x.shape();
  // How far apart elements of the output are for each dimension of the input: 0 where it is
  // reduced.
  List strides(in.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t axis = in.size(); axis-- > 0;) {
    if (axis > 0 && is_reduced(op.node, axis - 1)) continue;  // the batch comes first
    strides[axis] = stride;
    stride *= in[axis];
  }
  for (std::int64_t i = 0; i < x.size(); ++i) {
    std::int64_t rest = i, to = 0;
    for (std::size_t axis = in.size(); axis-- > 0; rest /= in[axis]) {
      to += rest % in[axis] * strides[axis];
    }
    f(x.data<float>()[i], to);
  }
}

void sum(const Operands& op) {
  std::vector<double> sums(static_cast<std::size_t>(op.output().size()), 0);
  for_each_element(
      op, [&](float x, std::int64_t to) { sums[static_cast<std::size_t>(to)] += double{x}; });
  fill_floats(op.output(), [&](std::int64_t i) {
    return static_cast<float>(sums[static_cast<std::size_t>(i)]);
  });
}

// A NaN wins.
void extreme(const Operands& op, bool largest) {
  float* y = op.output().data<float>();
  const float none = std::numeric_limits<float>::infinity();
  std::fill_n(y, op.output().size(), largest ? -none : none);
  for_each_element(op, [&](float x, std::int64_t to) {
    if (std::isnan(x) || (largest ? x > y[to] : x < y[to])) y[to] = x;
  });
}

using Reference = void (*)(const Operands&);

OpInfo row(Op op, const char* name, Reference reference) {
  return {.op = op,
          .name = name,
          .options = ReducedDims{},
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace

OpInfo sum_op() {
  OpInfo info = row(Op::kSum, "sum", sum);
  info.rounds_floats = true;
  return info;
}

OpInfo reduce_max_op() {
  return row(Op::kReduceMax, "reduce_max", [](const Operands& op) { extreme(op, true); });
}

OpInfo reduce_min_op() {
  return row(Op::kReduceMin, "reduce_min", [](const Operands& op) { extreme(op, false); });
}

}  // namespace steelyard::deploy
