// The larger or smaller of two values, of floats.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/arithmetic.h"
#include "steelyard/export/ops/rows.h"

namespace steelyard::deploy {

OpForm maximum_form() {
  return {.op = Op::kMaximum,
          .recorded = {"maximum"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_arithmetic(nodes, node, "Max", output);
          }};
}

OpForm minimum_form() {
  return {.op = Op::kMinimum,
          .recorded = {"minimum"},
          .onnx = [](OnnxNodes& nodes, const Node& node, const std::string& output) {
            add_arithmetic(nodes, node, "Min", output);
          }};
}

}  // namespace steelyard::deploy
