// Rows of a table of floats or codes at the whole numbers that the input holds, as floats.
#include <span>
#include <string>
#include <vector>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

std::string refusal(const Function& function) {
  return function.inputs().size() == 2 ? "" : "of integers";
}

// Codes are chosen before they become floats: the table's floats would be made in every run.
void onnx_of_codes(OnnxNodes& nodes, const Node& node, const std::string& rows,
                   const std::string& output) {
  constexpr std::int64_t kOnnxFloat = 1;
  const Weights& table = *node.weights;
  const std::int64_t count = table.weight.dim(0);
  const auto chosen = [&](const std::string& of, const std::string& name) {
    nodes.onnx().add("Gather", {of, rows}, name, {{"axis", std::int64_t{0}}});
    return name;
  };
  const auto floats_of_rows = [&](const std::string& end, std::span<const float> values) {
    return chosen(nodes.onnx().floats(node.name + end, values, {count, 1}), node.name + end + "s");
  };
  const std::string codes =
      chosen(nodes.onnx().codes(node.name + "/table", OnnxType::kInt8,
                                table.weight.span<std::int8_t>(), table.weight.shape()),
             node.name + "/codes");
  std::string values = node.name + "/floats";
  nodes.onnx().add("Cast", {codes}, values, {{"to", kOnnxFloat}});
  if (!table.zero_points.empty()) {
    const std::vector<float> zeros(table.zero_points.begin(), table.zero_points.end());
    const std::string moved = node.name + "/moved";
    nodes.onnx().add("Sub", {values, floats_of_rows("/zero_point", zeros)}, moved);
    values = moved;
  }
  nodes.onnx().add("Mul", {values, floats_of_rows("/scale", table.scales)}, output);
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  constexpr std::int64_t kOnnxInt64 = 7;
  const std::string rounded = node.name + "/rounded", rows = node.name + "/rows";
  nodes.onnx().add("Round", {nodes.input(node)}, rounded);
  nodes.onnx().add("Cast", {rounded}, rows, {{"to", kOnnxInt64}});
  if (node.weights) return onnx_of_codes(nodes, node, rows, output);
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
