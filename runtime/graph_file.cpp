#include "steelyard/runtime/graph_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <nlohmann/json.hpp>

#include "steelyard/framework/files/checkpoint_file.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"
#include "steelyard/framework/tensor/rounding_words.h"
#include "steelyard/kernels/cpu/pack_codes.h"
#include "steelyard/runtime/graph_keys.h"
#include "steelyard/runtime/json_document.h"
#include "steelyard/runtime/op_info.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

using Json = nlohmann::json;

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

DType dtype_from(const Json& json, std::initializer_list<DType> known) {
  const auto name = json.get<std::string>();
  for (const DType dtype : known) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw std::invalid_argument("unexpected dtype '" + name + "'");
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

ProductKind product_from(const std::string& name) {
  if (name == "integer") return ProductKind::kInteger;
  if (name == "float") return ProductKind::kFloat;
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
  if (json.contains(kRecurrentKey)) {
    node.recurrent = weights_from(json.at(kRecurrentKey), recurrent_name(node.name), tensors);
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

// The parts that a key lists; none where it is absent.
std::vector<PartPort> parts_from(const Json& json, const char* key) {
  std::vector<PartPort> parts;
  if (!json.contains(key)) return parts;
  for (const Json& part : json.at(key)) parts.push_back(part_from(part));
  return parts;
}

// `version`: the file's.
Graph graph_from(const Json& json, const TensorsByName& tensors, int version) {
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
  graph.input_ports = parts_from(json, "inputs");
  graph.output_ports = parts_from(json, "outputs");
  for (const Json& value : json.at("values")) graph.values.push_back(value_from(value));
  for (const Json& node : json.at("nodes")) {
    graph.nodes.push_back(node_from(node, tensors, graph.nodes));
  }
  validate(graph);
  for (const Node& node : graph.nodes) {
    const int needed = version_of_node(graph, node);
    if (needed <= version) continue;
    throw std::invalid_argument(fmt::format("{}: {} is of {} {}, the file of {}", node.name,
                                            op_name(node.op), kVersionKey, needed, version));
  }
  require_fit(graph);
  return graph;
}

Graph graph_in(const SafetensorsReader& reader) {
  const Checkpoint file = load_checkpoint(reader);
  const auto entry = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  const std::string name = reader.name();
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
    const JsonDocument json(entry(kGraphKey));
    Graph graph = graph_from(json.root(), tensors, version);
    graph.model_sha256 = entry(kModelKey);
    return graph;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // std::length_error too: a size in the file
    throw InputError(name + ": graph: " + printable(error.what()));
  }
}

// What `reader` makes.
Graph graph_of(const std::string& name, const auto& reader) {
  return with_memory_for(name, [&] { return graph_in(reader()); });
}

}  // namespace

Graph load_graph(const std::filesystem::path& path) {
  return graph_of(printable(path.string()), [&] { return SafetensorsReader(path); });
}

Graph graph_of_bytes(std::string_view bytes, const std::string& name) {
  return graph_of(
      name, [&] { return SafetensorsReader(std::make_shared<const InputFile>(bytes, name)); });
}

}  // namespace steelyard::deploy
