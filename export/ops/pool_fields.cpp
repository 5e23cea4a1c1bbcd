#include "steelyard/export/ops/pool_fields.h"

#include <fmt/core.h>

namespace steelyard::deploy {

std::vector<NodeField> pool_fields() {
  return {{"kernel", [](Node& node) { return &node.pool.kernel; }},
          {"stride", [](Node& node) { return &node.pool.stride; }},
          {"padding", [](Node& node) { return &node.pool.padding; }}};
}

std::string extent_text(const std::array<std::int64_t, 2>& pair) {
  return fmt::format("{}x{}", pair[0], pair[1]);
}

std::string pool_text(const Node& node) {
  return fmt::format(" {}, stride {}, padding {}", extent_text(node.pool.kernel),
                     extent_text(node.pool.stride), extent_text(node.pool.padding));
}

Shape pool_shape(const Graph& graph, const Node& node) {
  const auto s =
      pool2d_shape(op_name(node.op), batched(graph.values[node.inputs[0]].shape), node.pool);
  return {s.out_h(), s.out_w(), s.out_channels};
}

void check_window(const Node& node, std::int64_t pixels) {
  expect(pixels <= INT32_MAX / 255, node, "its sums can overflow int32");
}

}  // namespace steelyard::deploy
