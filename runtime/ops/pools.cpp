#include "steelyard/runtime/ops/pools.h"

namespace steelyard::deploy {

Shape pool_shape(const Graph& graph, const Node& node) {
  const auto s = pool2d_shape(op_name(node.op), batched(graph.values[node.inputs[0]].shape),
                              node.as<Pool2dGeometry>());
  return {s.out_h(), s.out_w(), s.out_channels};
}

void check_window(const Node& node, std::int64_t pixels) {
  expect(pixels <= INT32_MAX / 255, node, "its sums can overflow int32");
}

float average_factor(const Quantization& in, std::int64_t count) {
  return kernels::global_average_multiplier(in.scale, count, 1.0F);
}

}  // namespace steelyard::deploy
