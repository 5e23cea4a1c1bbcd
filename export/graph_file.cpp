#include "steelyard/export/graph_file.h"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/export/op_info.h"
#include "steelyard/export/preprocessing_json.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/kernels/cpu/pack_codes.h"
#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/qat/quantizers/words.h"

namespace steelyard::deploy {
namespace {

using Json = nlohmann::json;

constexpr const char* kKindKey = "kind";
constexpr const char* kKind = "integer-model";
constexpr const char* kVersionKey = "graph_version";
// Readers of a version know what was there before it: 2 has weights with zero points and integer
// sums of groups, 3 codes of more than 8 bits, 5 constants, 11 weights that several nodes have (13:
// but for the biases), 13 inputs and outputs of ONNX files that do not have the batch first, 14
// codes in fixed point; the row of an operation, or a form of it, says its version (op_info.h).
constexpr const char* kGraphKey = "graph";
constexpr const char* kBatchAxisKey = "batch_axis";  // of ports that do not have the batch first
constexpr const char* kRoundingKey = "rounding";  // of codes, where they are not rounded as floats
constexpr const char* kWeightsOfKey = "weights_of";  // the node under whose name they are stored
constexpr const char* kWeightOfKey = "weight_of";    // likewise, but for the bias

Tensor pack(const Weights& weights) {
  const int bits = stored_bits(weights.bits);
  const Tensor& codes = weights.weight;
  if (!weights.has_codes() || bits == 8) return codes;
  Tensor packed = Tensor::empty({(codes.size() * bits + 7) / 8}, DType::kU8);
  kernels::pack_codes(static_cast<const std::uint8_t*>(codes.raw()), codes.size(), bits,
                      packed.data<std::uint8_t>());
  return packed;
}

Tensor unpack(const Tensor& stored, const Shape& shape, int bits) {
  const std::int64_t size = shape_size(shape);
  if (size > stored.bytes() * 8 || stored.dtype() != DType::kU8 ||
      stored.shape() != Shape{(size * bits + 7) / 8}) {
    throw std::invalid_argument("its packed weight has shape " + shape_string(stored.shape()));
  }
  Tensor codes = Tensor::empty(shape, DType::kI8);
  kernels::unpack_codes(stored.data<std::uint8_t>(), size, bits, /*is_signed=*/true,
                        static_cast<std::uint8_t*>(codes.raw()));
  return codes;
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
    const OpInfo& info = op_info(node.op);
    int needed = info.graph_version.number;
    if (info.later_version != nullptr) needed = std::max(needed, info.later_version(graph, node));
    if (!node.constants.empty()) needed = std::max(needed, 5);
    if (is_newer(node)) version = std::max(version, 2);
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

DType dtype_from(const Json& json, std::initializer_list<DType> known) {
  const auto name = json.get<std::string>();
  for (const DType dtype : known) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw std::invalid_argument("unexpected dtype '" + name + "'");
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

Value value_from(const Json& json) {
  Value value{json.at("name").get<std::string>(), integers_of<std::int64_t>(json.at("shape")),
              std::nullopt};
  if (json.contains("quantization")) {
    const Json& q = json.at("quantization");
    value.quantization = Quantization{
        {q.at("scale").get<float>(), integer_of<std::int32_t>(q.at("zero_point"))},
        {integer_of<std::int32_t>(q.at("qmin")), integer_of<std::int32_t>(q.at("qmax"))},
        dtype_from(q.at("dtype"), {DType::kI8, DType::kU8, DType::kI32}),
        q.contains(kRoundingKey)
            ? value_of<kernels::Rounding>(q.at(kRoundingKey).get<std::string>())
            : kernels::Rounding::kFloat};
  }
  return value;
}

// Switches are 0 and 1.
template <typename T>
Json json_of(const T& value) {
  return value;
}
Json json_of(bool flag) { return flag ? 1 : 0; }

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
  if (node.weights) {
    json["weight_shape"] = node.weights->weight.shape();
    json["weight_bits"] = node.weights->has_codes() ? node.weights->bits : 32;
    json["product"] = node.weights->integer() ? "integer" : "float";
  }
  return json;
}

// An option of its type.
void read(const Json& json, std::vector<std::int64_t>& list) {
  list = integers_of<std::int64_t>(json);
}
template <std::size_t count>
void read(const Json& json, std::array<std::int64_t, count>& numbers) {
  const auto values = integers_of<std::int64_t>(json);
  if (values.size() != count) {
    throw std::invalid_argument(fmt::format("expected {} integers, got {}", count, values.size()));
  }
  std::copy(values.begin(), values.end(), numbers.begin());
}
void read(const Json& json, std::int64_t& number) { number = integer_of<std::int64_t>(json); }
void read(const Json& json, double& real) { real = json.get<double>(); }
void read(const Json& json, bool& flag) { flag = integer_of<std::int64_t>(json) != 0; }

std::string constant_name(const std::string& node, std::size_t place) {
  return node + ".operand" + std::to_string(place);
}

Op operation_from(const std::string& name) {
  const OpInfo* info = find_op(name);
  if (info == nullptr) throw std::invalid_argument("unknown operation '" + name + "'");
  return info->op;
}

using TensorsByName = std::map<std::string, Tensor>;

Tensor take(const TensorsByName& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::invalid_argument("no tensor '" + name + "'");
  return found->second;
}

Product product_from(const std::string& name) {
  if (name == "integer") return Product::kInteger;
  if (name == "float") return Product::kFloat;
  throw std::invalid_argument("unknown product '" + name + "'");
}

Tensor bias_from(const std::string& name, const TensorsByName& tensors) {
  return tensors.contains(name + ".bias") ? take(tensors, name + ".bias") : Tensor();
}

Weights weights_from(const Json& json, const std::string& name, const TensorsByName& tensors) {
  const Shape shape = integers_of<std::int64_t>(json.at("weight_shape"));
  const int bits = integer_of<int>(json.at("weight_bits"));
  Weights weights;
  weights.product = product_from(json.at("product").get<std::string>());
  weights.weight = take(tensors, name + ".weight");
  weights.bits = bits;
  if (stored_bits(bits) < 8) weights.weight = unpack(weights.weight, shape, stored_bits(bits));
  if (weights.weight.shape() != shape) {
    throw std::invalid_argument("expected '" + name + ".weight' " + shape_string(shape) + ", got " +
                                shape_string(weights.weight.shape()));
  }
  if (bits <= 8) {
    const Tensor scales = take(tensors, name + ".weight_scale");
    weights.scales.assign(scales.span<float>().begin(), scales.span<float>().end());
    if (tensors.contains(name + ".weight_zero_point")) {
      const Tensor zero_points = take(tensors, name + ".weight_zero_point");
      weights.zero_points.assign(zero_points.span<std::int8_t>().begin(),
                                 zero_points.span<std::int8_t>().end());
    }
  } else {
    weights.bits = 8;
  }
  return weights;
}

// The weights of a node before this one.
const Weights& weights_among(const std::vector<Node>& nodes, const std::string& name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.name == name && node.weights;
  });
  if (found == nodes.end()) {
    throw std::invalid_argument("no node before it is '" + name + "' and has weights");
  }
  return *found->weights;
}

// `before`: the nodes that the file has in front of it.
Node node_from(const Json& json, const TensorsByName& tensors, const std::vector<Node>& before) {
  Node node;
  node.op = operation_from(json.at("op").get<std::string>());
  node.name = json.at("name").get<std::string>();
  node.inputs = integers_of<std::size_t>(json.at("inputs"));
  node.output = integer_of<std::size_t>(json.at("output"));
  node.activation = value_of<kernels::Activation>(json.at("activation").get<std::string>());
  node.options = op_info(node.op).options;
  std::visit(
      [&](auto& options) {
        for_each_field<std::decay_t<decltype(options)>>([&](const auto& field) {
          if (field.optional && !json.contains(field.name)) return;
          read(json.at(field.name), field.get(options));
        });
      },
      node.options);
  if (json.contains("constants")) {
    for (const Json& at : json.at("constants")) {
      const auto place = integer_of<std::size_t>(at);
      node.constants.push_back({place, take(tensors, constant_name(node.name, place))});
    }
  }
  if (json.contains(kWeightsOfKey)) {
    node.weights = weights_among(before, json.at(kWeightsOfKey).get<std::string>());
  } else if (json.contains(kWeightOfKey)) {
    node.weights = weights_among(before, json.at(kWeightOfKey).get<std::string>());
    node.weights->bias = bias_from(node.name, tensors);
  } else if (json.contains("weight_shape")) {
    node.weights = weights_from(json, node.name, tensors);
    node.weights->bias = bias_from(node.name, tensors);
  }
  return node;
}

// What the file says of data and outputs fits the network.
void require_fit(const Graph& graph) {
  const std::int64_t outputs = shape_size(graph.values[graph.output].shape);
  const bool texts = graph.target == TargetKind::kText;
  if (texts && (graph.characters < 2 || outputs % graph.characters != 0)) {
    throw InputError(std::to_string(outputs) + " outputs are not those of frames of " +
                     std::to_string(graph.characters) + " characters");
  }
  const std::int64_t classes = texts ? graph.characters : outputs;
  if (!graph.class_names.empty() && std::ssize(graph.class_names) != classes) {
    throw InputError("expected names of " + std::to_string(classes) + " classes, got " +
                     std::to_string(graph.class_names.size()));
  }
  if (!graph.preprocessing.table) return;
  const std::int64_t features = feature_count(graph.preprocessing.table->columns);
  if (graph.values[graph.input].shape != Shape{features}) {
    throw InputError("the table's columns give " + std::to_string(features) +
                     " features, the input is " + shape_string(graph.values[graph.input].shape));
  }
}

PartPort part_from(const Json& json) {
  PartPort part;
  json.at("name").get_to(part.port.name);
  json.at("batch").get_to(part.port.batch);
  json.at("channels_last").get_to(part.port.channels_last);
  part.port.dtype =
      dtype_from(json.at("dtype"), {DType::kF32, DType::kI32, DType::kI64, DType::kBool});
  part.first = integer_of<std::int64_t>(json.at("first"));
  part.shape = integers_of<std::int64_t>(json.at("shape"));
  if (json.contains(kBatchAxisKey)) {
    part.port.batch_axis = integer_of<std::int64_t>(json.at(kBatchAxisKey));
  }
  return part;
}

Graph graph_from(const Json& json, const TensorsByName& tensors) {
  Graph graph;
  json.at("name").get_to(graph.name);
  graph.input = integer_of<std::size_t>(json.at("input"));
  graph.output = integer_of<std::size_t>(json.at("output"));
  graph.target = json.value("classifies", true) ? TargetKind::kClass : TargetKind::kValues;
  if (json.contains("target")) {
    graph.target = value_of<TargetKind>(json.at("target").get<std::string>());
  }
  if (graph.target == TargetKind::kText) {
    graph.characters = integer_of<std::int64_t>(json.at("characters"));
  }
  graph.preprocessing = preprocessing_from(json.at("preprocessing"));
  if (json.contains("class_names")) json.at("class_names").get_to(graph.class_names);
  for (const Json& part : json.value("inputs", Json::array())) {
    graph.input_ports.push_back(part_from(part));
  }
  for (const Json& part : json.value("outputs", Json::array())) {
    graph.output_ports.push_back(part_from(part));
  }
  for (const Json& value : json.at("values")) graph.values.push_back(value_from(value));
  for (const Json& node : json.at("nodes")) {
    graph.nodes.push_back(node_from(node, tensors, graph.nodes));
  }
  validate(graph);
  require_fit(graph);
  return graph;
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
    file.tensors.push_back({node.name + ".weight", pack(*node.weights)});
    if (node.weights->has_codes()) {
      file.tensors.push_back(
          {node.name + ".weight_scale", per_scale(*node.weights, node.weights->scales)});
    }
    if (!node.weights->zero_points.empty()) {
      file.tensors.push_back(
          {node.name + ".weight_zero_point", per_scale(*node.weights, node.weights->zero_points)});
    }
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

Graph load_graph(const std::filesystem::path& path) {
  const Checkpoint file = load_checkpoint(path);
  const auto entry = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  const std::string name = printable(path.string());
  if (entry(kKindKey) != kKind) {
    throw InputError(name + ": expected an exported integer model, got another checkpoint");
  }
  int version = 1;
  while (version <= kNewestGraphVersion && std::to_string(version) != entry(kVersionKey)) ++version;
  if (version > kNewestGraphVersion) {
    throw InputError(name + ": expected " + kVersionKey + " 1 to " +
                     std::to_string(kNewestGraphVersion) + ", got '" +
                     printable(entry(kVersionKey)) + "'");
  }
  TensorsByName tensors;
  for (const NamedTensor& tensor : file.tensors) tensors.emplace(tensor.name, tensor.tensor);
  try {
    Graph graph = graph_from(Json::parse(entry(kGraphKey)), tensors);
    graph.model_sha256 = entry(kModelKey);
    return graph;
  } catch (const std::exception& error) {
    throw InputError(name + ": graph: " + printable(error.what()));
  }
}

}  // namespace steelyard::deploy
