// Sums and extremes over some dimensions of a sample, of floats.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

using List = std::vector<std::int64_t>;

std::string refusal(const Function& function) {
  const List axes = described<List>(function);
  return !axes.empty() && axes[0] == 0 ? "over the batch" : "";
}

void read(const Function& function, Node& node) {
  for (const std::int64_t axis : described<List>(function)) {
    node.as<ReducedDims>().dims.push_back(axis - 1);
  }
}

void add_reduction(OnnxNodes& nodes, const Node& node, const char* operation,
                   const std::string& output) {
  const Graph& graph = nodes.graph();
  List axes;
  for (const std::int64_t axis : node.as<ReducedDims>().dims) axes.push_back(axis + 1);
  const bool keeps =
      graph.values[node.output].shape.size() == graph.values[node.inputs[0]].shape.size();
  nodes.onnx().add(
      operation,
      {nodes.input(node), nodes.onnx().int64s(node.name + "/axes", axes, {std::ssize(axes)})},
      output, {{"keepdims", std::int64_t{keeps ? 1 : 0}}});
}
using Onnx = void (*)(OnnxNodes&, const Node&, const std::string&);

OpForm form(Op op, const char* recorded, Onnx onnx) {
  return {.op = op,
          .recorded = {recorded},
          .refusal = refusal,
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace

OpForm sum_form() {
  return form(Op::kSum, "sum", [](OnnxNodes& nodes, const Node& node, const std::string& output) {
    add_reduction(nodes, node, "ReduceSum", output);
  });
}

// The axes of ONNX's extremes are an input since opset 18.
OpForm reduce_max_form() {
  OpForm extreme = form(Op::kReduceMax, "amax",
                        [](OnnxNodes& nodes, const Node& node, const std::string& output) {
                          add_reduction(nodes, node, "ReduceMax", output);
                        });
  extreme.opset = 18;
  return extreme;
}

OpForm reduce_min_form() {
  OpForm extreme = form(Op::kReduceMin, "amin",
                        [](OnnxNodes& nodes, const Node& node, const std::string& output) {
                          add_reduction(nodes, node, "ReduceMin", output);
                        });
  extreme.opset = 18;
  return extreme;
}

}  // namespace steelyard::deploy
