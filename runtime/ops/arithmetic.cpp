// Differences and quotients of floats.
#include "steelyard/runtime/ops/arithmetic.h"

#include "steelyard/runtime/ops/rows.h"

namespace steelyard::deploy {
namespace {

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

float difference(float a, float b) { return a - b; }
float quotient(float a, float b) { return a / b; }
float quotient_or_zero(float a, float b) { return b == 0 ? 0.0F : a / b; }

template <float (*combine)(float, float)>
OpInfo row(Op op, const char* name) {
  return {.op = op,
          .name = name,
          .inputs = 2,
          .takes_constants = true,
          .graph_version = 5,
          .shape = broadcast_shape,
          .check = check,
          .reference = [](const Operands& operands) { combine_floats(operands, combine); }};
}

}  // namespace

OperandIndex::OperandIndex(const Tensor& operand, const Tensor& output) {
  std::int64_t stride = 1;
  for (std::int64_t axis = output.rank(); axis-- > 0;) {
    const std::int64_t own = axis - (output.rank() - operand.rank());
    const std::int64_t size = own < 0 ? 1 : operand.dim(own);
    sizes_.push_back(output.dim(axis));
    strides_.push_back(size == 1 ? 0 : stride);
    stride *= size;
  }
}

Shape broadcast_shape(const Graph& graph, const Node& node) {
  Shape result = batched(graph.values[node.inputs[0]].shape);
  const auto join = [&](const Shape& other) {
    expect(other.size() <= result.size(), node, "its inputs differ in rank");
    for (std::size_t i = 1; i <= other.size(); ++i) {
      std::int64_t& size = result[result.size() - i];
      const std::int64_t own = other[other.size() - i];
      expect(own == size || own == 1 || size == 1, node, "its inputs' shapes do not broadcast");
      if (size == 1) size = own;
    }
    expect(result[0] == 1, node, "a constant differs from sample to sample");
  };
  for (std::size_t i = 1; i < node.inputs.size(); ++i) {
    const Shape other = batched(graph.values[node.inputs[i]].shape);
    expect(other.size() == result.size(), node, "its inputs differ in rank");
    join(other);
  }
  for (const Constant& constant : node.constants) join(constant.value.shape());
  result.erase(result.begin());
  return result;
}

OpInfo sub_op() { return row<difference>(Op::kSub, "sub"); }

OpInfo div_op() { return row<quotient>(Op::kDiv, "div"); }

OpInfo div_no_nan_op() { return row<quotient_or_zero>(Op::kDivNoNan, "div_no_nan"); }

}  // namespace steelyard::deploy
