// Choices between two values by a comparison of two others, in float.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

void add_choice(OnnxNodes& nodes, const Node& node, const char* comparison,
                const std::string& output) {
  const std::string condition = node.name + "/condition";
  nodes.onnx().add(comparison, {nodes.operand(node, 0), nodes.operand(node, 1)}, condition);
  nodes.onnx().add("Where", {condition, nodes.operand(node, 2), nodes.operand(node, 3)}, output);
}

}  // namespace

OpForm where_greater_form() {
  return {.op = Op::kWhereGreater,
          .recorded = {"where_greater"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_choice(nodes, node, "Greater", output);
          }};
}

OpForm where_greater_equal_form() {
  return {.op = Op::kWhereGreaterEqual,
          .recorded = {"where_greater_equal"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_choice(nodes, node, "GreaterOrEqual", output);
          }};
}

OpForm where_equal_form() {
  return {.op = Op::kWhereEqual,
          .recorded = {"where_equal"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_choice(nodes, node, "Equal", output);
          }};
}

}  // namespace steelyard::deploy
