#include "steelyard/export/ops/recurrent/first_state.h"

#include "steelyard/export/onnx/onnx_nodes.h"

namespace steelyard::deploy {

std::string first_state(OnnxNodes& nodes, const Node& node, const char* name, const Tensor& state,
                        const std::string& in) {
  OnnxGraph& onnx = nodes.onnx();
  const std::string prefix = node.name + "/" + name;
  const std::int64_t units = state.dim(0);
  const auto number = [&](const std::string& suffix, std::int64_t value) {
    return onnx.int64s(prefix + suffix, std::vector<std::int64_t>{value}, {1});
  };
  const std::string value = onnx.floats(prefix, state.span<float>(), {1, 1, units});
  onnx.add("Shape", {in}, prefix + "/shape");
  onnx.add("Gather", {prefix + "/shape", number("/at", 1)}, prefix + "/batch");
  onnx.add("Concat", {number("/one", 1), prefix + "/batch", number("/units", units)},
           prefix + "/sizes", {{"axis", std::int64_t{0}}});
  onnx.add("Expand", {value, prefix + "/sizes"}, prefix + "/all");
  return prefix + "/all";
}

}  // namespace steelyard::deploy
