#include "steelyard/export/ops/pool_fields.h"

#include <fmt/core.h>

namespace steelyard::deploy {

std::string extent_text(const std::array<std::int64_t, 2>& pair) {
  return fmt::format("{}x{}", pair[0], pair[1]);
}

std::string pool_text(const Node& node) {
  const auto& [kernel, stride, padding] = node.as<Pool2dGeometry>();
  return fmt::format(" {}, stride {}, padding {}", extent_text(kernel), extent_text(stride),
                     extent_text(padding));
}

Shape pool_shape(const Graph& graph, const Node& node) {
  const auto s = pool2d_shape(op_name(node.op), batched(graph.values[node.inputs[0]].shape),
                              node.as<Pool2dGeometry>());
  return {s.out_h(), s.out_w(), s.out_channels};
}

void check_window(const Node& node, std::int64_t pixels) {
  expect(pixels <= INT32_MAX / 255, node, "its sums can overflow int32");
}

}  // namespace steelyard::deploy
