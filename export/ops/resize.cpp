// Images of other sizes: pixels that repeat, which codes can do too, or weighted sums of pixels.
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/export/c/c_move.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/framework/tensor/describes.h"
#include "steelyard/runtime/ops/resize.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

void read(const Function& function, Node& node) {
  const auto axes = described<std::array<ResizedAxis, 2>>(function);
  for (std::size_t side = 0; side < 2; ++side) {
    node.as<Repeats>().repeats[side] = axes[side].repeats;
    if (axes[side].repeats > 0) continue;
    const std::vector<float> weights(axes[side].weights.begin(), axes[side].weights.end());
    node.constants.push_back(
        {place_of(node, side), Tensor::from(weights, {axes[side].outputs, axes[side].inputs})});
  }
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  OnnxGraph& onnx = nodes.onnx();
  std::string from = nodes.input(node);
  std::size_t steps = node.constants.size();
  const auto next = [&](const std::string& name) {
    return --steps == 0 ? output : node.name + name;
  };
  if (repeats_of(node)[0] > 1 || repeats_of(node)[1] > 1 || node.constants.empty()) {
    ++steps;
    const std::string to = next("/repeated");
    const float scales[] = {1, 1,
                            static_cast<float>(std::max<std::int64_t>(repeats_of(node)[0], 1)),
                            static_cast<float>(std::max<std::int64_t>(repeats_of(node)[1], 1))};
    onnx.add("Resize", {from, "", onnx.floats(node.name + "/scales", scales, {4})}, to,
             {{"mode", std::string("nearest")},
              {"coordinate_transformation_mode", std::string("asymmetric")},
              {"nearest_mode", std::string("floor")}});
    from = to;
  }
  if (repeats_of(node)[0] == 0) {
    const Tensor& weights = *constant_at(node, place_of(node, 0));
    const std::string to = next("/rows");
    onnx.add("MatMul",
             {onnx.floats(node.name + "/height", weights.span<float>(), weights.shape()), from},
             to);
    from = to;
  }
  if (repeats_of(node)[1] == 0) {
    const Tensor& weights = *constant_at(node, place_of(node, 1));
    const std::int64_t outputs = weights.dim(0), inputs = weights.dim(1);
    std::vector<float> turned(static_cast<std::size_t>(weights.size()));
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      turned[static_cast<std::size_t>(i % inputs * outputs + i / inputs)] =
          weights.data<float>()[i];
    }
    onnx.add("MatMul", {from, onnx.floats(node.name + "/width", turned, {inputs, outputs})},
             next("/columns"));
  }
}

// Whole numbers of repeats, by the centres of pixels: no rounding reaches another pixel.
void tflite(TfliteNodes& nodes, const Node& node) {
  const Shape& out = nodes.graph().values[node.output].shape;
  const std::vector<std::int32_t> sizes{static_cast<std::int32_t>(out[0]),
                                        static_cast<std::int32_t>(out[1])};
  nodes.add(TfliteOp::kResizeNearestNeighbor, 3,
            {nodes.input(node), nodes.int32s(node.name + "/size", sizes, {2})}, nodes.output(node),
            {.table = 74, .fields = {{1, 1, 1}}});
}

void c(CNodes& nodes, const Node& node) {
  const Shape& in = nodes.graph().values[node.inputs[0]].shape;
  const auto [rows, columns] = repeats_of(node);
  const std::int64_t row = in[1] * columns * in[2];
  add_c_move(nodes, node, node.inputs[0],
             {{in[0], in[1] * in[2], rows * row},
              {rows, 0, row},
              {in[1], in[2], columns * in[2]},
              {columns, 0, in[2]},
              {in[2], 1, 1}});
}

}  // namespace

OpForm resize_form() {
  return {.op = Op::kResize,
          .recorded = {"quantized_resize", "resize"},
          .read = read,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
