// Several outputs of the model: their values one after another, which are the outputs of an ONNX
// file.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {
namespace {

// The file's outputs themselves.
void onnx(OnnxNodes& nodes, const Node& node, const std::string&) {
  const std::vector<PartPort>& ports = nodes.graph().output_ports;
  if (ports.empty()) refuse_onnx(node, "the graph does not say what the outputs are called");
  for (std::size_t i = 0; i < ports.size(); ++i) nodes.give(node.inputs[i], ports[i].port);
}

}  // namespace

OpForm output_parts_form() {
  return {.op = Op::kOutputParts,
          .recorded = {"output_parts"},
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
