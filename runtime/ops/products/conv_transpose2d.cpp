// A transposed convolution: an image and a weight [O, C/groups, KH, KW].
#include "steelyard/runtime/ops/products/linear_map.h"
#include "steelyard/runtime/ops/rows.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {
namespace {

Shape shape(const Graph& graph, const Node& node) {
  const Shape& in = graph.values[node.inputs[0]].shape;
  const Tensor& weight = node.weights->weight;
  const std::int64_t groups = node.as<ConvTranspose2dGeometry>().conv.groups;
  expect(in.size() == 3, node, "expected an image, got " + shape_string(in));
  expect(groups >= 1 && weight.rank() == 4 && weight.size() > 0 &&
             in[2] == weight.dim(1) * groups && weight.dim(0) % groups == 0,
         node, "its weight does not fit the input " + shape_string(in));
  const auto s = transposed_conv(batched(in), weight.shape(), node.as<ConvTranspose2dGeometry>());
  return {s.height.out, s.width.out, s.out_channels};
}

void check(const Graph& graph, const Node& node) {
  check_weights(graph, node);
  const auto& q = graph.values[node.output].quantization;
  const Conv2dGeometry& conv = node.as<ConvTranspose2dGeometry>().conv;
  const bool plain = conv.groups == 1 && conv.dilation == std::array<std::int64_t, 2>{1, 1};
  expect(!q || !q->fixed_point() || plain, node, "in fixed point it has no groups or dilation");
}

void reference(const Operands& op) {
  const Shape& kernel = op.node.weights->weight.shape();
  Windows windows =
      windows_of(op, {kernel[2], kernel[3]}, op.node.as<ConvTranspose2dGeometry>().conv);
  windows.transposed = true;
  run_linear_map(op, windows);
}

}  // namespace

OpInfo conv_transpose2d_op() {
  return {.op = Op::kConvTranspose2d,
          .name = "conv_transpose2d",
          .has_weights = true,
          .fuses_activation = true,
          .fixed_point = true,
          .options = ConvTranspose2dGeometry{},
          .graph_version = 6,
          .shape = shape,
          .check = check,
          .reference = reference,
          .fast = run_linear_map};
}

}  // namespace steelyard::deploy
