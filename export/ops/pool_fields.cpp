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

void add_tflite_pool(TfliteNodes& nodes, const Node& node, TfliteOp op, std::int8_t border) {
  const auto& pool = node.as<Pool2dGeometry>();
  const auto size = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const TfliteNodes::Padded image = nodes.padded(
      node, {.kernel = pool.kernel, .stride = pool.stride, .padding = pool.padding}, border);
  nodes.add(op, 2, {image.input}, nodes.output(node),
            {.table = 5,
             .fields = {{0, 1, image.padding},
                        {1, 4, size(pool.stride[1])},
                        {2, 4, size(pool.stride[0])},
                        {3, 4, size(pool.kernel[1])},
                        {4, 4, size(pool.kernel[0])}}});
}

}  // namespace steelyard::deploy
