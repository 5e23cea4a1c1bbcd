// Floats to codes. ONNX has it as the quantizer of its output.
#include "steelyard/framework/tensor/visit_codes.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) { return graph.values[node.inputs[0]].shape; }

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.inputs[0]].quantization && graph.values[node.output].quantization, node,
         "makes codes of floats");
}

void reference(const Operands& op) {
  const kernels::CodeGrid<float> grid = grid_of(*op.output_value().quantization);
  const float* x = op.input(0).data<float>();
  fill_codes(op.output(), [&](std::int64_t i) { return kernels::quantize_value(x[i], grid); });
}

bool fast(const Operands& op) {
  const Quantization& q = *op.output_value().quantization;
  if (q.wide()) return false;
  visit_codes(q.dtype, [&](auto* tag) {
    using Code = CodeOf<decltype(tag)>;
    kernels::run(kernels::Quantize<float, Code>{
        .layout = kernels::ChannelLayout::per_tensor(op.output().size()),
        .range = q.range,
        .x = op.input(0).data<float>(),
        .scale = &q.scale,
        .zero_point = &q.zero_point,
        .codes = op.output().data<Code>()});
  });
  return true;
}

}  // namespace

OpInfo quantize_op() {
  return {.op = Op::kQuantize,
          .name = "quantize",
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = fast};
}

}  // namespace steelyard::deploy
