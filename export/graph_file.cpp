#include "steelyard/export/graph_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/framework/files/checkpoint_file.h"
#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/framework/tensor/rounding_words.h"
#include "steelyard/kernels/cpu/pack_codes.h"
#include "steelyard/runtime/graph_keys.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

using Json = nlohmann::json;
using TensorsByName = std::map<std::string, Tensor>;

Tensor pack(const Weights& weights) {
  const int bits = stored_bits(weights.bits);
  const Tensor& codes = weights.weight;
  if (!weights.has_codes() || bits == 8) return codes;
  Tensor packed = Tensor::empty({(codes.size() * bits + 7) / 8}, DType::kU8);
  kernels::pack_codes(static_cast<const std::uint8_t*>(codes.raw()), codes.size(), bits,
                      packed.data<std::uint8_t>());
  return packed;
}

// [O], or [O, groups]: of scales and zero points.
template <typename T>
Tensor per_scale(const Weights& weights, const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t outputs = weights.weight.dim(0);
  return Tensor::from(values, count == outputs ? Shape{count} : Shape{outputs, count / outputs});
}

// Whether another node has its weight, and whether with the bias.
bool has_home(const Graph& graph, const Node& node) {
  return node.weights && &graph.nodes[home_of_weight(graph, node)] != &node;
}
bool has_home_of_all(const Graph& graph, const Node& node) {
  return node.weights && home_of_weights(graph, node) != node.name;
}

int version_of(const Graph& graph) {
  const auto is_wide = [](const Value& value) {
    return value.quantization && value.quantization->wide();
  };
  const auto is_newer = [](const Node& node) {
    if (!node.weights) return false;
    const Weights& weights = *node.weights;
    return !weights.zero_points.empty() || (weights.integer() && weights.has_groups());
  };
  int version = 1;
  for (const Node& node : graph.nodes) {
    int needed = version_of_node(graph, node);
    if (is_newer(node)) needed = std::max(needed, 2);
    if (has_home(graph, node)) needed = std::max(needed, has_home_of_all(graph, node) ? 11 : 13);
    version = std::max(version, needed);
  }
  const auto is_moved = [](const PartPort& part) { return part.port.batch_axis != 0; };
  for (const auto* ports : {&graph.input_ports, &graph.output_ports}) {
    if (std::any_of(ports->begin(), ports->end(), is_moved)) version = std::max(version, 13);
  }
  const bool fixed = std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) {
    return value.quantization && value.quantization->fixed_point();
  });
  if (fixed) return std::max(version, 14);
  const bool wide = std::any_of(graph.values.begin(), graph.values.end(), is_wide);
  return wide ? std::max(version, 3) : version;
}

Json to_json(const Value& value) {
  Json json{{"name", value.name}, {"shape", value.shape}};
  if (value.quantization) {
    const Quantization& q = *value.quantization;
    json["quantization"] = {{"scale", q.scale},
                            {"zero_point", q.zero_point},
                            {"qmin", q.range.qmin},
                            {"qmax", q.range.qmax},
                            {"dtype", dtype_name(q.dtype)}};
    if (q.fixed_point()) json["quantization"][kRoundingKey] = word_of(q.rounding);
  }
  return json;
}

// Switches are 0 and 1.
template <typename T>
Json json_of(const T& value) {
  return value;
}
Json json_of(bool flag) { return flag ? 1 : 0; }

void describe(const Weights& weights, Json& json) {
  json["weight_shape"] = weights.weight.shape();
  json["weight_bits"] = weights.has_codes() ? weights.bits : 32;
  json["product"] = weights.integer() ? "integer" : "float";
}

Json to_json(const Node& node) {
  Json json{{"op", op_name(node.op)},
            {"name", node.name},
            {"inputs", node.inputs},
            {"output", node.output},
            {"activation", word_of(node.activation)}};
  std::visit(
      [&](const auto& options) {
        using Options = std::decay_t<decltype(options)>;
        for_each_field<Options>([&, fresh = Options{}](const auto& field) {
          const auto& value = field.get(options);
          if (!field.optional || value != field.get(fresh)) json[field.name] = json_of(value);
        });
      },
      node.options);
  for (const Constant& constant : node.constants) json["constants"].push_back(constant.place);
  if (node.weights) describe(*node.weights, json);
  if (node.recurrent) describe(*node.recurrent, json[kRecurrentKey]);
  return json;
}

// The tensors of weights under a node's name, without the bias.
void add_tensors(const Weights& weights, const std::string& name,
                 std::vector<NamedTensor>& tensors) {
  tensors.push_back({name + ".weight", pack(weights)});
  if (weights.has_codes()) {
    tensors.push_back({name + ".weight_scale", per_scale(weights, weights.scales)});
  }
  if (!weights.zero_points.empty()) {
    tensors.push_back({name + ".weight_zero_point", per_scale(weights, weights.zero_points)});
  }
}

Json to_json(const PartPort& part) {
  Json json{{"name", part.port.name},
            {"batch", part.port.batch},
            {"channels_last", part.port.channels_last},
            {"dtype", dtype_name(part.port.dtype)},
            {"first", part.first},
            {"shape", part.shape}};
  if (part.port.batch_axis != 0) json[kBatchAxisKey] = part.port.batch_axis;
  return json;
}

Checkpoint contents_of(const Graph& graph) {
  validate(graph);
  Json json{{"name", graph.name},
            {"input", graph.input},
            {"output", graph.output},
            {"classifies", graph.target == TargetKind::kClass},
            {"preprocessing", Json(preprocessing_json(graph.preprocessing))},
            {"values", Json::array()},
            {"nodes", Json::array()}};
  // Only what there is: other files are as they were before.
  if (graph.target == TargetKind::kMarks || graph.target == TargetKind::kText) {
    json["target"] = word_of(graph.target);
  }
  if (graph.target == TargetKind::kText) json["characters"] = graph.characters;
  if (!graph.class_names.empty()) json["class_names"] = graph.class_names;
  for (const PartPort& part : graph.input_ports) json["inputs"].push_back(to_json(part));
  for (const PartPort& part : graph.output_ports) json["outputs"].push_back(to_json(part));
  Checkpoint file;
  for (const Value& value : graph.values) json["values"].push_back(to_json(value));
  for (const Node& node : graph.nodes) {
    json["nodes"].push_back(to_json(node));
    for (const Constant& constant : node.constants) {
      file.tensors.push_back({constant_name(node.name, constant.place), constant.value});
    }
    if (node.recurrent) {
      add_tensors(*node.recurrent, recurrent_name(node.name), file.tensors);
    }
    if (!node.weights) continue;
    if (has_home_of_all(graph, node)) {
      json["nodes"].back()[kWeightsOfKey] = home_of_weights(graph, node);
      continue;
    }
    if (node.weights->bias.defined()) {
      file.tensors.push_back({node.name + ".bias", node.weights->bias});
    }
    if (has_home(graph, node)) {
      json["nodes"].back()[kWeightOfKey] = graph.nodes[home_of_weight(graph, node)].name;
      continue;
    }
    add_tensors(*node.weights, node.name, file.tensors);
  }
  file.metadata = {{kKindKey, kKind},
                   {kVersionKey, std::to_string(version_of(graph))},
                   {kGraphKey, json.dump()}};
  return file;
}

}  // namespace

void save_graph(const std::filesystem::path& path, const Graph& graph) {
  Checkpoint file = contents_of(graph);
  if (!graph.model_sha256.empty()) file.metadata.emplace(kModelKey, graph.model_sha256);
  save_checkpoint(path, file);
}

bool holds_graph(const std::filesystem::path& path, const Graph& graph) {
  const Checkpoint file = load_checkpoint(path);
  const Checkpoint expected = contents_of(graph);
  // The file has checksums in addition to these.
  for (const auto& [key, text] : expected.metadata) {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end() || found->second != text) return false;
  }
  TensorsByName tensors;
  for (const NamedTensor& tensor : file.tensors) tensors.emplace(tensor.name, tensor.tensor);
  return tensors.size() == expected.tensors.size() &&
         std::all_of(expected.tensors.begin(), expected.tensors.end(), [&](const NamedTensor& t) {
           const auto found = tensors.find(t.name);
           return found != tensors.end() && same_elements(found->second, t.tensor);
         });
}

}  // namespace steelyard::deploy
