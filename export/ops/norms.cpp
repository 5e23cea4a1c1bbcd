// Norms of floats: layer norms, and batch norms that are part of no layer before them.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

void layer_norm_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto constant = [&](const char* name, std::size_t place) {
    const Tensor& value = *constant_at(node, place);
    return nodes.onnx().floats(node.name + name, value.span<float>(), value.shape());
  };
  nodes.onnx().add(
      "LayerNormalization", {nodes.input(node), constant("/gamma", 1), constant("/beta", 2)},
      output,
      {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(node.as<NormEpsilon>().eps)}});
}

void scale_shift_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Mul", {nodes.operand(node, 0), nodes.operand(node, 1)}, node.name + "/scaled");
  nodes.onnx().add("Add", {node.name + "/scaled", nodes.operand(node, 2)}, output);
}

}  // namespace

OpForm layer_norm_form() {
  return {.op = Op::kLayerNorm,
          .recorded = {"layer_norm"},
          .read = [](const Function& function,
                     Node& node) { node.options = NormEpsilon{described<double>(function)}; },
          .onnx = layer_norm_onnx,
          .onnx_order = OnnxOrder::kAsHere,
          .opset = 17};
}

OpForm scale_shift_form() {
  return {.op = Op::kScaleShift, .recorded = {"batch_norm"}, .onnx = scale_shift_onnx};
}

}  // namespace steelyard::deploy
