// Running sums along the last dimension, in float.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  node.options = described<CumulativeSumOptions>(function);
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto& options = node.as<CumulativeSumOptions>();
  const std::size_t rank = nodes.graph().values[node.output].shape.size();
  const std::vector<std::int64_t> last{nodes.axis(node, rank - 1)};
  const std::string axis = nodes.onnx().int64s(node.name + "/axis", last, {1});
  nodes.onnx().add(
      "CumSum", {nodes.input(node), axis}, output,
      {{"exclusive", std::int64_t{options.exclusive}}, {"reverse", std::int64_t{options.reverse}}});
}

}  // namespace

OpForm cumulative_sum_form() {
  return {.op = Op::kCumulativeSum, .recorded = {"cumulative_sum"}, .read = read, .onnx = onnx};
}

}  // namespace steelyard::deploy
