// Images of other sizes: pixels that repeat, which codes can do too, or weighted sums of pixels.
#include <cmath>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/c_move.h"
#include "steelyard/export/ops/moves.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/ops/moves/resize.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

constexpr const char* kSides[] = {"height", "width"};

const std::array<std::int64_t, 2>& repeats_of(const Node& node) {
  return node.as<Repeats>().repeats;
}

// The constants' order: of the height, of the width, where these have weights.
std::size_t place_of(const Node& node, std::size_t side) {
  return side == 0 || repeats_of(node)[0] > 0 ? 1 : 2;
}

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 3, node, "expected an image, got " + shape_string(in));
  Shape out = in;
  std::size_t weighted = 0;
  for (std::size_t side = 0; side < 2; ++side) {
    if (repeats_of(node)[side] > 0) {
      out[side] *= repeats_of(node)[side];
      continue;
    }
    ++weighted;
    const Tensor* weights = constant_at(node, place_of(node, side));
    expect(weights != nullptr && weights->rank() == 2 && weights->dim(1) == in[side], node,
           std::string("expected weights [outputs, inputs] of the ") + kSides[side]);
    out[side] = weights->dim(0);
  }
  expect(node.constants.size() == weighted, node, "wrong number of weights");
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(node.constants.empty() || !graph.values[node.output].quantization, node,
         "sums of pixels are computed in float");
}

// Each row and column so often.
Tensor repeated(const Operands& op) {
  const auto [rows, columns] = repeats_of(op.node);
  const Shape& in = op.input_value(0).shape;
  const std::int64_t width = in[1], channels = in[2];
  move(op, 0, [=](std::int64_t i) {
    const std::int64_t pixel = i / channels, to_width = width * columns;
    return (pixel / to_width / rows * width + pixel % to_width / columns) * channels + i % channels;
  });
  return op.output();
}

// x [N, H, W, C] with sums along one side.
Tensor weighted(const Tensor& x, std::size_t side, const Tensor& weights) {
  Shape shape = x.shape();
  shape[side + 1] = weights.dim(0);
  Tensor y = Tensor::empty(shape);
  const std::int64_t inputs = weights.dim(1), outputs = weights.dim(0);
  const std::int64_t inner = side == 0 ? x.dim(2) * x.dim(3) : x.dim(3);
  fill_floats(y, [&](std::int64_t i) {
    const std::int64_t o = i / inner % outputs, first = i / inner / outputs * inputs;
    double sum = 0;
    for (std::int64_t k = 0; k < inputs; ++k) {
      sum += double{weights.data<float>()[o * inputs + k]} *
             double{x.data<float>()[(first + k) * inner + i % inner]};
    }
    return static_cast<float>(sum);
  });
  return y;
}

void reference(const Operands& op) {
  if (op.node.constants.empty()) {
    repeated(op);
    return;
  }
  Tensor y = dequantized(op.input_value(0), op.input(0));
  for (std::size_t side = 0; side < 2; ++side) {
    if (repeats_of(op.node)[side] > 1) {
      Tensor ones =
          Tensor::zeros({y.dim(static_cast<std::int64_t>(side) + 1) * repeats_of(op.node)[side],
                         y.dim(static_cast<std::int64_t>(side) + 1)});
      for (std::int64_t o = 0; o < ones.dim(0); ++o) {
        ones.data<float>()[o * ones.dim(1) + o / repeats_of(op.node)[side]] = 1;
      }
      y = weighted(y, side, ones);
    } else if (repeats_of(op.node)[side] == 0) {
      y = weighted(y, side, *constant_at(op.node, place_of(op.node, side)));
    }
  }
  fill_floats(op.output(), [&](std::int64_t i) { return y.data<float>()[i]; });
}

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

OpInfo resize_op() {
  return {.op = Op::kResize,
          .name = "resize",
          .recorded = {"quantized_resize", "resize"},
          .inputs = 3,
          .optional = 2,
          .takes_constants = true,
          .keeps_codes = true,
          .rounds_floats = true,
          .options = Repeats{},
          .graph_version = 5,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .tflite = tflite,
          .c = c};
}

}  // namespace steelyard::deploy
