// A transposed convolution of floats: an image and a weight [C, O/groups, KH, KW].
#include "steelyard/framework/ops/conv_transpose2d.h"

#include <fmt/core.h>

#include "steelyard/export/onnx_nodes.h"
#include "steelyard/export/ops/pool_fields.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/describes.h"

namespace steelyard::deploy {
namespace {

const Tensor& weight_of(const Node& node) { return *constant_at(node, 1); }

void check_operands(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  expect(in.size() == 3, node, "expected an image, got " + shape_string(in));
  const Tensor* weight = constant_at(node, 1);
  expect(weight != nullptr && weight->rank() == 4 && weight->dim(0) == in[2] &&
             weight->size() > 0 && node.conv.groups >= 1 && in[2] % node.conv.groups == 0,
         node, "its weight does not fit the input " + shape_string(in));
  const Tensor* bias = constant_at(node, 2);
  expect(bias == nullptr || bias->shape() == Shape{weight->dim(1) * node.conv.groups}, node,
         "its bias does not fit the weight");
}

Shape shape(const Graph& graph, const Node& node) {
  check_operands(graph, node);
  const Shape& in = graph.values[node.inputs[0]].shape;
  const Tensor& weight = weight_of(node);
  const Conv2dGeometry& g = node.conv;
  Shape out{0, 0, weight.dim(1) * g.groups};
  for (std::size_t i = 0; i < 2; ++i) {
    expect(g.stride[i] >= 1 && g.dilation[i] >= 1 && node.output_padding[i] < g.stride[i] &&
               in[i] >= 1,
           node, "expected strides and dilations of at least 1, and less output padding");
    out[i] = (in[i] - 1) * g.stride[i] - 2 * g.padding[i] +
             g.dilation[i] * (weight.shape()[i + 2] - 1) + node.output_padding[i] + 1;
    expect(out[i] >= 1, node, "its output has no pixels");
  }
  return out;
}

void check(const Graph& graph, const Node& node) {
  expect(!graph.values[node.output].quantization, node, "is computed in float");
}

void reference(const Operands& op) {
  const Tensor x = real_operand(op, 0);
  const Tensor& w = weight_of(op.node);
  const Tensor* bias = constant_at(op.node, 2);
  const Conv2dGeometry& g = op.node.conv;
  const Shape& in = op.input_value(0).shape;
  const Shape& out = op.output_value().shape;
  const std::int64_t outputs = w.dim(1), taps = w.dim(2) * w.dim(3), channels = in[2] / g.groups;
  // The input's position that tap k of output position `at` reads; -1 where there is none.
  const auto source = [&](std::size_t side, std::int64_t at, std::int64_t k) -> std::int64_t {
    const std::int64_t from = at + g.padding[side] - k * g.dilation[side];
    const bool hits = from >= 0 && from % g.stride[side] == 0 && from / g.stride[side] < in[side];
    return hits ? from / g.stride[side] : -1;
  };
  fill_floats(op.output(), [&](std::int64_t i) {
    const std::int64_t o = i % out[2], pixel = i / out[2];
    const std::int64_t row = pixel / out[1] % out[0], image = pixel / out[1] / out[0];
    const std::int64_t first = o / outputs * channels;
    double sum = bias == nullptr ? 0 : double{bias->data<float>()[o]};
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t r = source(0, row, tap / w.dim(3));
      const std::int64_t c = source(1, pixel % out[1], tap % w.dim(3));
      if (r < 0 || c < 0) continue;
      const float* from = x.data<float>() + ((image * in[0] + r) * in[1] + c) * in[2] + first;
      for (std::int64_t k = 0; k < channels; ++k) {
        sum += double{from[k]} *
               double{w.data<float>()[((first + k) * outputs + o % outputs) * taps + tap]};
      }
    }
    return static_cast<float>(sum);
  });
}

void read(const Function& function, Node& node) {
  const auto geometry = described<ConvTranspose2dGeometry>(function);
  node.conv = geometry.conv;
  node.output_padding = geometry.output_padding;
}

void onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const Tensor& weight = weight_of(node);
  std::vector<std::string> operands{
      nodes.input(node),
      nodes.onnx().floats(node.name + "/weight", weight.span<float>(), weight.shape())};
  if (const Tensor* bias = constant_at(node, 2)) {
    operands.push_back(
        nodes.onnx().floats(node.name + "/bias", bias->span<float>(), bias->shape()));
  }
  nodes.onnx().add("ConvTranspose", operands, output,
                   {{"kernel_shape", std::vector<std::int64_t>{weight.dim(2), weight.dim(3)}},
                    {"strides", pair(node.conv.stride)},
                    {"pads", pads(node.conv.padding)},
                    {"dilations", pair(node.conv.dilation)},
                    {"output_padding", pair(node.output_padding)},
                    {"group", node.conv.groups}});
}

std::string text(const Node& node) {
  return fmt::format(" {}x{}, stride {}, padding {}", weight_of(node).dim(2),
                     weight_of(node).dim(3), extent_text(node.conv.stride),
                     extent_text(node.conv.padding));
}

}  // namespace

OpInfo conv_transpose2d_op() {
  return {.op = Op::kConvTranspose2d,
          .name = "conv_transpose2d",
          .recorded = {"conv_transpose2d"},
          .inputs = 3,
          .optional = 1,
          .takes_constants = true,
          .rounds_floats = true,
          .fields = {{"stride", [](Node& node) { return &node.conv.stride; }},
                     {"padding", [](Node& node) { return &node.conv.padding; }},
                     {"dilation", [](Node& node) { return &node.conv.dilation; }},
                     {"output_padding", [](Node& node) { return &node.output_padding; }},
                     {"groups", [](Node& node) { return &node.conv.groups; }}},
          .graph_version = 5,
          .read = read,
          .shape = shape,
          .check = check,
          .reference = reference,
          .onnx = onnx,
          .onnx_order = OnnxOrder::kChannelsFirst,
          .text = text};
}

}  // namespace steelyard::deploy
