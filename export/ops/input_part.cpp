// Some values of the model's input, which are one of the inputs of an ONNX file.
#include <algorithm>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/ops/moves/input_part.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  const auto part = described<SamplePart>(function);
  node.options = PartOfInput{{part.first}, part.shape};
}

// The file's input itself, its images as convolutions want them.
void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const std::vector<PartPort>& ports = nodes.graph().input_ports;
  const auto& part = node.as<PartOfInput>();
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const PartPort& input) {
    return input.first == part.first[0] && input.shape == part.shape;
  });
  if (found == ports.end() || node.inputs[0] != nodes.graph().input) {
    refuse_onnx(node, "the graph does not say which input that is");
  }
  nodes.take(found->port, node.output, output);
}

}  // namespace

OpForm input_part_form() {
  return {.op = Op::kInputPart,
          .recorded = {"input_part"},
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst};
}

}  // namespace steelyard::deploy
