#include "steelyard/export/tflite.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "steelyard/export/op_info.h"
#include "steelyard/export/preprocessing_json.h"
#include "steelyard/export/tflite_nodes.h"
#include "steelyard/framework/data/target_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard::deploy {
namespace {

constexpr const char* kMetadataName = "steelyard";

bool makes_input_codes(const Graph& graph, const Node& node) {
  return node.op == Op::kQuantize && node.inputs[0] == graph.input;
}

// The value that the file has as its input: the codes of the model's.
std::size_t input_codes(const Graph& graph) {
  return std::find_if(graph.nodes.begin(), graph.nodes.end(),
                      [&](const Node& node) { return makes_input_codes(graph, node); })
      ->output;
}

std::string metadata_text(const Graph& graph) {
  nlohmann::ordered_json json;
  json["preprocessing"] = preprocessing_json(graph.preprocessing);
  if (!graph.class_names.empty()) json["class_names"] = graph.class_names;
  if (graph.target != TargetKind::kClass) json["target"] = word_of(graph.target);
  if (!graph.model_sha256.empty()) json[kModelKey] = graph.model_sha256;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::string tflite_refusal(const Graph& graph) {
  if (!graph.input_ports.empty() || !graph.output_ports.empty()) {
    return "a TFLite file has one input and one output here, the model has several";
  }
  const auto input_readers =
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return std::count(node.inputs.begin(), node.inputs.end(), graph.input) > 0;
      });
  for (const Node& node : graph.nodes) {
    const auto& q = graph.values[node.output].quantization;
    if (q && !q->fixed_point()) {
      return "its codes are rounded as floats: a TFLite file needs a model trained with "
             "export.profile tflm";
    }
    const std::string layer = "layer '" + printable(node.name) + "': ";
    if (!q) return layer + "a TFLite file has no floats";
    if (makes_input_codes(graph, node) && input_readers == 1) continue;
    if (op_info(node.op).tflite == nullptr) {
      return layer + "the TFLite file has no form of " + op_name(node.op);
    }
  }
  return graph.nodes.empty() || input_readers != 1 ? "the model's input is expected to be quantized"
                                                   : "";
}

std::string tflite_file(const Graph& graph) {
  validate(graph);
  if (const std::string why = tflite_refusal(graph); !why.empty()) {
    throw std::invalid_argument(why);
  }
  TfliteNodes nodes(graph);
  for (const Node& node : graph.nodes) {
    if (!makes_input_codes(graph, node)) op_info(node.op).tflite(nodes, node);
  }
  const auto port = [&](const std::string& name, std::size_t value) {
    const std::int32_t tensor = nodes.tensor(value);
    nodes.model().tensors[static_cast<std::size_t>(tensor)].name = name;
    return std::vector<TflitePort>{{name, tensor}};
  };
  nodes.model().inputs = port(graph.input_port.name, input_codes(graph));
  nodes.model().outputs = port(graph.output_port.name, graph.output);
  nodes.model().description = graph.name;
  nodes.add_metadata(kMetadataName, metadata_text(graph));
  return tflite_bytes(nodes.model());
}

void write_tflite(const std::filesystem::path& path, const Graph& graph) {
  write_file_atomic(path, tflite_file(graph));
}

}  // namespace steelyard::deploy
