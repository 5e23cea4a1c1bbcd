// Some values of the model's input, which are one of the inputs of an ONNX file.
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const auto& [first, dims] = node.as<PartOfInput>();
  std::int64_t size = 1;
  for (const std::int64_t dim : dims) {
    expect(dim >= 0 && !__builtin_mul_overflow(size, dim, &size), node, "expected sizes");
  }
  const std::int64_t values = shape_size(graph.values[node.inputs[0]].shape);
  expect(first[0] >= 0 && size <= values && first[0] <= values - size, node,
         "takes values outside of its input's " + std::to_string(values));
  return dims;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.inputs[0]].quantization && !graph.values[node.output].quantization,
         node, "is of floats");
}

void reference(const Operands& op) {
  const Tensor& x = op.input(0);
  const std::int64_t of_x = x.size() / x.dim(0), of_y = op.output().size() / x.dim(0);
  const float* in = x.data<float>() + op.node.as<PartOfInput>().first[0];
  fill_floats(op.output(), [&](std::int64_t i) { return in[i / of_y * of_x + i % of_y]; });
}

}  // namespace

OpInfo input_part_op() {
  return {.op = Op::kInputPart,
          .name = "input_part",
          .options = PartOfInput{},
          .graph_version = 6,
          .shape = shape,
          .check = check,
          .reference = reference};
}

}  // namespace steelyard::deploy
