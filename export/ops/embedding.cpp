// Rows of a table of floats at the whole numbers that the input holds, as floats.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

std::string refusal(const Function& function) {
  return function.inputs().size() == 2 ? "" : "of integers";
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  constexpr std::int64_t kOnnxInt64 = 7;
  const std::string rounded = node.name + "/rounded", rows = node.name + "/rows";
  nodes.onnx().add("Round", {nodes.input(node)}, rounded);
  nodes.onnx().add("Cast", {rounded}, rows, {{"to", kOnnxInt64}});
  nodes.onnx().add("Gather", {nodes.operand(node, 1), rows}, output, {{"axis", std::int64_t{0}}});
}

}  // namespace

OpForm embedding_form() {
  return {.op = Op::kEmbedding,
          .recorded = {"embedding"},
          .refusal = refusal,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
