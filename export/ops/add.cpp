// The sum of two values, or of one and a constant.
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

// Only the sum of codes has one.
void read(const Function& function, Node& node) {
  const auto* fused = dynamic_cast<const Describes<kernels::Activation>*>(&function);
  if (fused != nullptr) node.activation = fused->described();
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  add_arithmetic(nodes, node, "Add", output);
}

void tflite(TfliteNodes& nodes, const Node& node) {
  nodes.add(TfliteOp::kAdd, 2, {nodes.input(node, 0), nodes.input(node, 1)}, nodes.output(node),
            {.table = 11, .fields = {{0, 1, tflite_activation(node.activation)}}});
}

void c(CNodes& nodes, const Node& node) {
  const Quantization& q = nodes.output_quantization(node);
  const kernels::FixedAdd rule =
      kernels::make_fixed_add(grid_of(nodes.input_quantization(node, 0)),
                              grid_of(nodes.input_quantization(node, 1)), grid_of(q), q.rounding);
  CFields fields;
  fields.set("count", shape_size(nodes.graph().values[node.output].shape));
  fields.set("zero_a", rule.zero_a);
  fields.set("multiplier_a", rule.of_a.multiplier).set("shift_a", rule.of_a.shift);
  fields.set("zero_b", rule.zero_b);
  fields.set("multiplier_b", rule.of_b.multiplier).set("shift_b", rule.of_b.shift);
  fields.set("multiplier", rule.of_sum.multiplier).set("shift", rule.of_sum.shift);
  fields.set("out_zero", q.zero_point);
  set_c_range(fields, q, node.activation);
  nodes.reuse(node);
  nodes.call("add", "add_node", node, fields);
}

}  // namespace

OpForm add_form() {
  return {.op = Op::kAdd,
          .recorded = {"quantized_add", "add"},
          .in_c_header = true,
          .read = read,
          .onnx = onnx,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
