// The product of two values whose shapes broadcast, or of one and a constant.
#include <algorithm>
#include <string>
#include <vector>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/kernels/fixed_point.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  add_arithmetic(nodes, node, "Mul", output);
}

void tflite(TfliteNodes& nodes, const Node& node) {
  nodes.add(TfliteOp::kMul, 2, {nodes.input(node, 0), nodes.input(node, 1)}, nodes.output(node),
            {.table = 21});
}

// The steps of an operand along the output's dimensions, 0 where it repeats; text of a list.
std::string steps_of(const Shape& operand, const Shape& out, std::size_t dims) {
  std::vector<std::int64_t> steps(dims, 0);
  std::int64_t step = 1;
  for (std::size_t i = 0; i < operand.size(); ++i) {  // from the last dimension on
    const std::int64_t size = operand[operand.size() - 1 - i];
    if (size == out[out.size() - 1 - i]) steps[dims - 1 - i] = step;
    step *= size;
  }
  std::string text;
  for (const std::int64_t one : steps) text += (text.empty() ? "{" : ", ") + std::to_string(one);
  return text + "}";
}

void c(CNodes& nodes, const Node& node) {
  constexpr std::size_t kDims = 4;
  const Shape& out = nodes.graph().values[node.output].shape;
  expect(out.size() <= kDims, node, "multiplies values of more than 4 dimensions");
  const Quantization& a = nodes.input_quantization(node, 0);
  const Quantization& b = nodes.input_quantization(node, 1);
  const Quantization& q = nodes.output_quantization(node);
  const kernels::FixedMultiplier factor = kernels::fixed_mul(a.scale, b.scale, q.scale, q.rounding);
  std::string sizes;
  for (std::size_t i = 0; i < kDims; ++i) {
    const bool given = i + out.size() >= kDims;
    sizes += (i == 0 ? "{" : ", ") + std::to_string(given ? out[i + out.size() - kDims] : 1);
  }
  CFields fields;
  fields.set("size", sizes + "}");
  fields.set("a_step", steps_of(nodes.graph().values[node.inputs[0]].shape, out, kDims));
  fields.set("b_step", steps_of(nodes.graph().values[node.inputs[1]].shape, out, kDims));
  fields.set("zero_a", a.zero_point).set("zero_b", b.zero_point);
  fields.set("multiplier", factor.multiplier).set("shift", std::min(factor.shift, 31));
  fields.set("out_zero", q.zero_point);
  set_c_range(fields, q, kernels::Activation::kNone);
  nodes.call("mul", "mul_node", node, fields);
}

}  // namespace

OpForm mul_form() {
  return {.op = Op::kMul,
          .recorded = {"quantized_mul", "mul"},
          .in_c_header = true,
          .onnx = onnx,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
