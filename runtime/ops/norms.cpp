// Norms of floats: layer norms, and batch norms that are part of no layer before them.
#include <cmath>

#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// Two constants with a number for each channel, the last dimension.
Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(!in.empty(), node, "expected an input with channels or features");
  for (const std::size_t place : {1U, 2U}) {
    const Tensor* constant = constant_at(node, place);
    expect(constant != nullptr && constant->shape() == Shape{in.back()}, node,
           "expected two constants of " + std::to_string(in.back()) + " numbers");
  }
  return in;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void check_epsilon(const Graph& graph, const Node& node) {
  check(graph, node);
  const double eps = node.as<NormEpsilon>().eps;
  expect(std::isfinite(eps) && eps >= 0, node, "expected an eps of at least 0");
}

void normalize(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const float* gamma = constant_at(op.node, 1)->data<float>();
  const float* beta = constant_at(op.node, 2)->data<float>();
  const std::int64_t columns = x.dim(-1), rows = x.size() / columns;
#pragma omp parallel for
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* from = x.data<float>() + row * columns;
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < columns; ++c) mean += double{from[c]};
    mean /= static_cast<double>(columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      variance += (double{from[c]} - mean) * (double{from[c]} - mean);
    }
    const double scale =
        1 / std::sqrt(variance / static_cast<double>(columns) + op.node.as<NormEpsilon>().eps);
    for (std::int64_t c = 0; c < columns; ++c) {
      op.output().data<float>()[row * columns + c] =
          static_cast<float>((double{from[c]} - mean) * scale * double{gamma[c]} + double{beta[c]});
    }
  }
}

void scale_and_shift(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const float* scale = constant_at(op.node, 1)->data<float>();
  const float* shift = constant_at(op.node, 2)->data<float>();
  const std::int64_t channels = x.dim(-1);
  fill_floats(op.output(), [&](std::int64_t i) {
    const std::int64_t c = i % channels;
    return static_cast<float>(double{x.data<float>()[i]} * double{scale[c]} + double{shift[c]});
  });
}

}  // namespace

OpInfo layer_norm_op() {
  return {.op = Op::kLayerNorm,
          .name = "layer_norm",
          .inputs = 3,
          .takes_constants = true,
          .rounds_floats = true,
          .options = NormEpsilon{},
          .graph_version = 5,
          .shape = shape,
          .check = check_epsilon,
          .reference = normalize};
}

OpInfo scale_shift_op() {
  return {.op = Op::kScaleShift,
          .name = "scale_shift",
          .inputs = 3,
          .takes_constants = true,
          .rounds_floats = true,
          .graph_version = 5,
          .shape = shape,
          .check = check,
          .reference = scale_and_shift};
}

}  // namespace steelyard::deploy
