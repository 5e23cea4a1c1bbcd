#include "steelyard/export/tflite/tflite.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "steelyard/export/fixed_point_graph.h"
#include "steelyard/export/op_form.h"
#include "steelyard/export/stream.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/export/tflite/tflite_stream.h"
#include "steelyard/framework/data/target_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

constexpr const char* kMetadataName = "steelyard";

std::string metadata_text(const Graph& graph, const Stream* stream) {
  nlohmann::ordered_json json;
  json["profile"] = fixed_point_profile(graph);
  json["preprocessing"] = preprocessing_json(graph.preprocessing);
  if (!graph.class_names.empty()) json["class_names"] = graph.class_names;
  if (graph.target != TargetKind::kClass) json["target"] = word_of(graph.target);
  if (stream != nullptr) {
    json["stream"] = {{"axis", stream->axis},
                      {"frames", stream->frames},
                      {"window_frames", stream->window_frames}};
  }
  if (!graph.model_sha256.empty()) json[kModelKey] = graph.model_sha256;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Of a valid graph, or of a stream's.
std::string file_of(const Graph& graph, bool pack_int4, const Stream* stream) {
  TfliteNodes nodes(graph, pack_int4);
  for (const Node& node : graph.nodes) {
    if (makes_input_codes(graph, node)) continue;
    if (stream != nullptr && stream->makes_history(node)) {
      add_tflite_history(nodes, node);
    } else {
      op_form(node.op).tflite(nodes, node);
    }
  }
  const auto port = [&](const std::string& name, std::size_t value) {
    const std::int32_t tensor = nodes.tensor(value);
    nodes.model().tensors[static_cast<std::size_t>(tensor)].name = name;
    return std::vector<TflitePort>{{name, tensor}};
  };
  nodes.model().inputs = port(graph.input_port.name, input_codes(graph));
  nodes.model().outputs = port(graph.output_port.name, graph.output);
  nodes.model().description = graph.name;
  nodes.add_metadata(kMetadataName, metadata_text(graph, stream));
  return tflite_bytes(nodes.model());
}

}  // namespace

std::string tflite_refusal(const Graph& graph) {
  return fixed_point_refusal(graph, "a TFLite file",
                             [](const OpForm& form) { return form.tflite != nullptr; });
}

std::string tflite_file(const Graph& graph, const TfliteExport& options) {
  validate(graph);
  if (const std::string why = tflite_refusal(graph); !why.empty()) {
    throw std::invalid_argument(why);
  }
  if (!options.stream) return file_of(graph, options.pack_int4, nullptr);
  const Stream stream = stream_of(graph, *options.stream);
  return file_of(stream.graph, options.pack_int4, &stream);
}

void write_tflite(const std::filesystem::path& path, const Graph& graph,
                  const TfliteExport& options) {
  write_file_atomic(path, tflite_file(graph, options));
}

}  // namespace steelyard::deploy
