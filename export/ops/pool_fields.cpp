#include "steelyard/export/ops/pool_fields.h"

#include <fmt/core.h>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/tflite/tflite_nodes.h"

namespace steelyard::deploy {

std::string extent_text(const std::array<std::int64_t, 2>& pair) {
  return fmt::format("{}x{}", pair[0], pair[1]);
}

std::string pool_text(const Node& node) {
  const auto& [kernel, stride, padding] = node.as<Pool2dGeometry>();
  return fmt::format(" {}, stride {}, padding {}", extent_text(kernel), extent_text(stride),
                     extent_text(padding));
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

void add_c_pool(CNodes& nodes, const Node& node, const char* kernel) {
  const Shape& in = nodes.graph().values[node.inputs[0]].shape;
  const Shape& out = nodes.graph().values[node.output].shape;
  const auto& pool = node.as<Pool2dGeometry>();
  CFields fields;
  fields.set("in_h", in[0]).set("in_w", in[1]).set("channels", in[2]);
  fields.set("out_h", out[0]).set("out_w", out[1]);
  fields.set("kernel_h", pool.kernel[0]).set("kernel_w", pool.kernel[1]);
  fields.set("stride_h", pool.stride[0]).set("stride_w", pool.stride[1]);
  fields.set("pad_h", pool.padding[0]).set("pad_w", pool.padding[1]);
  nodes.call(kernel, "pool_node", node, fields);
}

}  // namespace steelyard::deploy
