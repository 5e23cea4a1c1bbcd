// Operations that move elements of a sample without changing them, floats or codes: other shapes
// and orders, parts, borders.
#include "steelyard/runtime/ops/moves.h"

#include <algorithm>
#include <numeric>

#include "steelyard/framework/ops/moves/strided.h"
#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

using List = std::vector<std::int64_t>;

// Calls f(dimension, position) for each dimension of element i.
template <typename F>
void for_each_position(std::int64_t i, const Shape& shape, const F& f) {
  for (std::size_t d = shape.size(); d-- > 0; i /= shape[d]) f(d, i % shape[d]);
}

// The elements of each sample that lie so far apart along the output's dimensions, from `first` on;
// false where codes become floats, or for too many dimensions.
bool gather(const Operands& op, std::int64_t first, List strides) {
  const Tensor& x = op.input(0);
  if (x.dtype() != op.output().dtype() || !has_few_axes(op)) return false;
  strides.insert(strides.begin(), shape_size(op.input_value(0).shape));
  ops::gather(op_name(op.node.op), x, {op.output().shape(), first, std::move(strides)},
              op.output());
  return true;
}

// --- reshape

void reshape(const Operands& op) {
  move(op, 0, [](std::int64_t i) { return i; });
}

bool reshape_fast(const Operands& op) {
  if (op.input(0).dtype() != op.output().dtype()) return false;
  op.output().copy_from(op.input(0).reshape(op.output().shape()));
  return true;
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

bool permute_fast(const Operands& op) {
  const List strides = strides_of(op.input_value(0).shape);
  List of_output;
  for (const std::int64_t d : op.node.as<AxisOrder>().order) {
    of_output.push_back(strides[static_cast<std::size_t>(d)]);
  }
  return gather(op, 0, of_output);
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

bool slice_fast(const Operands& op) {
  List strides = strides_of(op.input_value(0).shape);
  const Positions& taken = op.node.as<Positions>();
  std::int64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    first += taken.first[d] * strides[d];
    strides[d] *= taken.steps[d];
  }
  return gather(op, first, strides);
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

}  // namespace

OpInfo reshape_op() {
  return {.op = Op::kReshape,
          .name = "reshape",
          .keeps_codes = true,
          .options = NewShape{},
          .graph_version = 5,
          .shape = reshaped,
          .reference = reshape,
          .fast = reshape_fast};
}

OpInfo permute_op() {
  return {.op = Op::kPermute,
          .name = "permute",
          .keeps_codes = true,
          .options = AxisOrder{},
          .graph_version = 5,
          .shape = permuted,
          .reference = permute,
          .fast = permute_fast};
}

OpInfo slice_op() {
  return {.op = Op::kSlice,
          .name = "slice",
          .keeps_codes = true,
          .options = Positions{},
          .graph_version = 5,
          .shape = sliced,
          .reference = slice,
          .fast = slice_fast};
}

OpInfo pad_op() {
  return {.op = Op::kPad,
          .name = "pad",
          .keeps_codes = true,
          .options = Border{},
          .graph_version = 5,
          .shape = padded,
          .check = check_border,
          .reference = pad};
}

}  // namespace steelyard::deploy
