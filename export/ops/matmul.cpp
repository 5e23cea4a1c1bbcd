// a [..., m, k] times b [..., k, n] with equal leading dimensions, of codes in integers or of
// floats; or times a matrix of floats that is the same for all of a.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Tensor* matrix = constant_at(node, 1);
  const std::string b =
      matrix != nullptr
          ? nodes.onnx().floats(node.name + "/matrix", matrix->span<float>(), matrix->shape())
          : nodes.input(node, 1);
  nodes.onnx().add("MatMul", {nodes.input(node, 0), b}, output);
}

}  // namespace

OpForm matmul_form() {
  return {.op = Op::kMatmul,
          .recorded = {"quantized_matmul", "matmul"},
          .onnx = onnx,
          .onnx_order = OnnxOrder::kAsHere};
}

}  // namespace steelyard::deploy
