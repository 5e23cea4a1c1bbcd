#include "steelyard/export/tflite/tflite_stream.h"

#include <optional>
#include <vector>

namespace steelyard::deploy {

void add_tflite_history(TfliteNodes& nodes, const Node& node) {
  const Quantization& q = nodes.output_quantization(node);
  const auto axis = static_cast<std::int32_t>(node.as<JoinedAxis>().axis) + 1;
  const auto time = static_cast<std::size_t>(axis);
  const std::int32_t fresh = nodes.batch_shape(node.inputs[0])[time];
  std::vector<std::int32_t> kept = nodes.batch_shape(node.output);
  kept[time] -= fresh;
  const auto rank = static_cast<std::int32_t>(kept.size());
  std::vector<std::int32_t> begin(kept.size(), 0);
  begin[time] = fresh;

  const std::int32_t variable = nodes.resource(node.name + "/variable");
  const std::int32_t before = nodes.computed(node.name + "/before", kept, q);
  const std::int32_t after = nodes.computed(node.name + "/after", kept, q);
  nodes.add(TfliteOp::kVarHandle, 1, {}, variable,
            {.table = 111, .texts = {{0, ""}, {1, node.name}}});
  nodes.add(TfliteOp::kReadVariable, 1, {variable}, before, {.table = 112});
  nodes.add(TfliteOp::kConcatenation, 2, {before, nodes.input(node)}, nodes.output(node),
            {.table = 10, .fields = {{0, 4, axis}}});
  nodes.add(TfliteOp::kSlice, 2,
            {nodes.output(node), nodes.int32s(node.name + "/begin", begin, {rank}),
             nodes.int32s(node.name + "/size", kept, {rank})},
            after, {.table = 48});
  nodes.add(TfliteOp::kAssignVariable, 1, {variable, after}, std::nullopt, {.table = 113});
}

}  // namespace steelyard::deploy
