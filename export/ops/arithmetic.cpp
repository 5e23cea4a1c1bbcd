// Differences and quotients of floats.
#include "steelyard/export/ops/arithmetic.h"

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

void div_no_nan_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  OnnxGraph& onnx = nodes.onnx();
  const float zero = 0;
  const std::string none = onnx.floats(node.name + "/zero", {&zero, 1}, {});
  const std::string divisor = nodes.operand(node, 1);
  onnx.add("Equal", {divisor, none}, node.name + "/is_zero");
  onnx.add("Div", {nodes.operand(node, 0), divisor}, node.name + "/quotient");
  onnx.add("Where", {node.name + "/is_zero", none, node.name + "/quotient"}, output);
}

}  // namespace

void add_arithmetic(OnnxNodes& nodes, const Node& node, const std::string& operation,
                    const std::string& output) {
  nodes.onnx().add(operation, {nodes.operand(node, 0), nodes.operand(node, 1)}, output);
}

OpForm sub_form() {
  return {.op = Op::kSub,
          .recorded = {"sub"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_arithmetic(nodes, node, "Sub", output);
          }};
}

OpForm div_form() {
  return {.op = Op::kDiv,
          .recorded = {"div"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_arithmetic(nodes, node, "Div", output);
          }};
}

OpForm div_no_nan_form() {
  return {.op = Op::kDivNoNan, .recorded = {"div_no_nan"}, .onnx = div_no_nan_onnx};
}

}  // namespace steelyard::deploy
