// Norms of floats: layer norms, and batch norms that are part of no layer before them.
#include <algorithm>
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

// The same to the bit: eight rows at once, whose sums do not wait for each other's.
bool normalize_fast(const Operands& op) {
  constexpr std::int64_t kTogether = 8;
  const Tensor x = real_operand(op, 0);
  const float* const gamma = constant_at(op.node, 1)->data<float>();
  const float* const beta = constant_at(op.node, 2)->data<float>();
  const std::int64_t columns = x.dim(-1), rows = x.size() / columns;
  const double eps = op.node.as<NormEpsilon>().eps, count = static_cast<double>(columns);
  float* const y = op.output().data<float>();
#pragma omp parallel for if (x.size() >= kElementsForThreads)
  for (std::int64_t first = 0; first < rows; first += kTogether) {
    const float* from[kTogether];  // beyond the last row, it again
    double mean[kTogether] = {}, variance[kTogether] = {};
    for (std::int64_t r = 0; r < kTogether; ++r) {
      from[r] = x.data<float>() + std::min(first + r, rows - 1) * columns;
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < kTogether; ++r) mean[r] += double{from[r][c]};
    }
    for (double& m : mean) m /= count;
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t r = 0; r < kTogether; ++r) {
        const double distance = double{from[r][c]} - mean[r];
        variance[r] += distance * distance;
      }
    }
    for (std::int64_t r = 0; r < std::min(kTogether, rows - first); ++r) {
      const double scale = 1 / std::sqrt(variance[r] / count + eps);
      float* const to = y + (first + r) * columns;
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) {
        to[c] = static_cast<float>((double{from[r][c]} - mean[r]) * scale * double{gamma[c]} +
                                   double{beta[c]});
      }
    }
  }
  return true;
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
          .reference = normalize,
          .fast = normalize_fast};
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
