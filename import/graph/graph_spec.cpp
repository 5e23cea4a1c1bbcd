#include "steelyard/import/graph/graph_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "steelyard/framework/autograd/shapes_only.h"
#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/files/json_integer.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/layers/catalogue.h"
#include "steelyard/layers/containers/graph.h"
#include "steelyard/layers/decoder.h"
#include "steelyard/layers/init.h"

namespace steelyard::imports {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kFormat = 1;
// Where nodes share parameters, and where a batch is not first: readers of format 1 would lay it
// out otherwise.
constexpr std::int64_t kLaterFormat = 2;
constexpr std::size_t kMostNodes = 1 << 20;
constexpr const char* kHeadNode = "output_activation";

// JSON has no infinite numbers: such a one is an object.
Json to_json(const OptionValue& value) {
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && std::isinf(*real)) return {{"infinite", *real > 0 ? 1 : -1}};
  return std::visit([](const auto& v) { return Json(v); }, value);
}

OptionValue option_from(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return integer_of<std::int64_t>(json);
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("infinite")) {
    const double sign = integer_of<std::int64_t>(json.at("infinite")) > 0 ? 1 : -1;
    return sign * std::numeric_limits<double>::infinity();
  }
  // A list of reals is an object, so that whole numbers among them stay reals.
  if (json.is_object()) return json.at("reals").get<std::vector<double>>();
  return steelyard::integers_of<std::int64_t>(json);
}

Json to_json(const NodeSpec& node) {
  Json options = Json::object();
  for (const auto& [name, value] : node.options) {
    const auto* reals = std::get_if<std::vector<double>>(&value);
    options[name] = reals != nullptr ? Json{{"reals", *reals}} : to_json(value);
  }
  Json json{
      {"name", node.name}, {"type", node.type}, {"inputs", node.inputs}, {"options", options}};
  if (!node.weights_of.empty()) json["weights_of"] = node.weights_of;
  return json;
}

NodeSpec node_from(const Json& json) {
  NodeSpec node{json.at("name").get<std::string>(), json.at("type").get<std::string>(),
                json.at("inputs").get<std::vector<std::string>>()};
  for (const auto& [name, value] : json.at("options").items()) {
    node.options.emplace(name, option_from(value));
  }
  if (json.contains("weights_of")) json.at("weights_of").get_to(node.weights_of);
  return node;
}

Json to_json(const PortSpec& port) {
  Json json{{"name", port.name}, {"batch", port.batch}, {"channels_last", port.channels_last}};
  if (port.whole()) json["type"] = port.type;
  for (const auto& [axis, name] : port.free) json["free"].push_back(Json{axis, name});
  if (port.batch_axis != 0) json["batch_axis"] = port.batch_axis;
  return json;
}

PortSpec port_from(const Json& json) {
  PortSpec port{json.at("name").get<std::string>(), json.at("batch").get<std::string>(),
                json.at("channels_last").get<bool>()};
  if (json.contains("type")) json.at("type").get_to(port.type);
  if (port.whole() && port.type != "int32" && port.type != "int64" && port.type != "bool") {
    throw std::invalid_argument("the type of '" + printable(port.name) + "'");
  }
  if (json.contains("batch_axis")) {
    port.batch_axis = integer_of<std::int64_t>(json.at("batch_axis"));
  }
  if (!json.contains("free")) return port;
  for (const Json& size : json.at("free")) {
    port.free[integer_of<std::int64_t>(size.at(0))] = size.at(1).get<std::string>();
  }
  return port;
}

Json to_json(const PartSpec& part) {
  return {{"port", to_json(part.port)}, {"first", part.first}, {"shape", part.shape}};
}

Shape sample_from(const Json& json) {
  const Shape shape = steelyard::integers_of<std::int64_t>(json);
  for (const std::int64_t dim : shape) {
    if (dim < 1 || dim > (std::int64_t{1} << 31)) throw std::invalid_argument("sizes of a sample");
  }
  return shape;
}

void require_port_of(const PortSpec& port, const Shape& sample) {
  if (port.batch_axis < 0 || port.batch_axis > std::ssize(sample)) {
    throw std::invalid_argument("the batch as dimension " + std::to_string(port.batch_axis) +
                                " beside those of " + shape_string(sample));
  }
  for (const auto& [axis, name] : port.free) {
    if (axis >= 0 && axis < std::ssize(sample)) continue;
    throw std::invalid_argument("a free dimension " + std::to_string(axis) + " of " +
                                shape_string(sample));
  }
}

// `what`: of a file it is.
PartSpec part_from(const Json& json, const Shape& sample, const std::string& what) {
  PartSpec part{port_from(json.at("port")), integer_of<std::int64_t>(json.at("first")),
                sample_from(json.at("shape"))};
  // The most values of a sample, so that no product of sizes overflows.
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto values_of = [](const Shape& shape) {
    std::int64_t values = 1;
    for (const std::int64_t extent : shape) {
      if (extent > kMost / values) throw std::invalid_argument("a sample that is too large");
      values *= extent;
    }
    return values;
  };
  if (part.first < 0 || part.first > values_of(sample) - values_of(part.shape)) {
    throw std::invalid_argument("an " + what + " outside of the sample");
  }
  require_port_of(part.port, part.shape);
  return part;
}

std::vector<PortSpec> ports_of(const PortSpec& whole, const std::vector<PartSpec>& parts) {
  if (parts.empty()) return {whole};
  std::vector<PortSpec> ports;
  for (const PartSpec& part : parts) ports.push_back(part.port);
  return ports;
}

std::shared_ptr<Module> made(const NodeSpec& node) {
  Rng rng(0);
  try {
    const LayerType* type = find_layer_type(node.type);
    if (type == nullptr) {
      throw std::invalid_argument("unknown module '" + printable(node.type) + "'");
    }
    return type->make(node.options, rng);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("node '" + printable(node.name) + "': " + error.what());
  }
}

std::string output_name(const GraphSpec& graph) {
  return graph.nodes.empty() ? "input" : graph.nodes.back().name;
}

bool shares(const NodeSpec& node) { return !node.weights_of.empty(); }

// The module of a node, which is that of another one where it has its parameters.
std::shared_ptr<Module> made_or_shared(
    const NodeSpec& node, const GraphSpec& graph,
    const std::map<std::string, std::shared_ptr<Module>>& before) {
  if (!shares(node)) return made(node);
  const auto owner =
      std::find_if(graph.nodes.begin(), graph.nodes.end(),
                   [&](const NodeSpec& other) { return other.name == node.weights_of; });
  const auto module = before.find(node.weights_of);
  const bool is_head = node.type == kEmbeddingHead;
  if (module == before.end() || shares(*owner) ||
      owner->type != (is_head ? "Embedding" : node.type) || owner->options != node.options) {
    throw std::invalid_argument("node '" + printable(node.name) + "' has the weights of '" +
                                printable(node.weights_of) +
                                "', which is no such module before it with weights of its own");
  }
  if (!is_head) return module->second;
  return std::make_shared<EmbeddingHead>(std::dynamic_pointer_cast<Embedding>(module->second));
}

std::shared_ptr<Graph> assembled(const GraphSpec& graph, bool with_head) {
  const WeightsLater later;
  std::vector<Graph::NamedNode> nodes;
  std::map<std::string, std::shared_ptr<Module>> modules;
  for (const NodeSpec& node : graph.nodes) {
    nodes.push_back({node.name, made_or_shared(node, graph, modules), node.inputs});
    modules.emplace(node.name, nodes.back().module);
  }
  if (with_head && !graph.head.empty()) {
    const NodeSpec head{kHeadNode, graph.head, {output_name(graph)}};
    nodes.push_back({head.name, made(head), head.inputs});
  }
  return std::make_shared<Graph>(nodes);
}

Shape batch_of(const Shape& sample, std::int64_t count) {
  Shape shape = sample;
  shape.insert(shape.begin(), count);
  return shape;
}

// What comes out for two samples, from a pass that computes nothing that is large.
Shape shape_of_two(const GraphSpec& graph, Module& module) {
  const NoGradGuard no_grad;
  const ShapesOnlyGuard shapes_only;
  ForwardContext context;
  return module.forward(Variable(Tensor::zeros(batch_of(graph.sample, 2))), context).shape();
}

void require_output(const GraphSpec& graph, Module& module) {
  const std::size_t parts = graph.output_parts.size();
  const bool joins = !graph.nodes.empty() && graph.nodes.back().type == kOutputParts;
  if (parts != (joins ? graph.nodes.back().inputs.size() : 0)) {
    throw std::invalid_argument("expected as many outputs as its last module reads, got " +
                                std::to_string(parts));
  }
  const Shape found = shape_of_two(graph, module);
  const Shape expected = batch_of(graph.output_sample, 2);
  if (found == expected) return;
  throw std::invalid_argument("expected an output of " + shape_string(expected) + ", got " +
                              shape_string(found));
}

}  // namespace

bool moves_values(const std::string& type) {
  return type == "Reshape" || type == "Permute" || type == "Flatten";
}

std::int64_t readers_of(const GraphSpec& graph, const std::string& name) {
  std::int64_t readers = 0;
  for (const NodeSpec& node : graph.nodes) {
    readers += std::count(node.inputs.begin(), node.inputs.end(), name);
  }
  return readers;
}

std::size_t last_computing(const GraphSpec& graph) {
  std::size_t at = graph.nodes.size() - 1;
  while (moves_values(graph.nodes[at].type)) {
    const std::string& before = graph.nodes[at].inputs[0];
    const auto maker = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                    [&](const NodeSpec& node) { return node.name == before; });
    if (maker == graph.nodes.end() || readers_of(graph, before) != 1) break;
    at = static_cast<std::size_t>(maker - graph.nodes.begin());
  }
  return at;
}

std::string output_activation(const GraphSpec& graph) {
  if (!graph.head.empty() || graph.nodes.empty()) return graph.head;
  return graph.nodes[last_computing(graph)].type;
}

Shape output_shape(const GraphSpec& graph) {
  const Shape shape = shape_of_two(graph, *assembled(graph, /*with_head=*/false));
  return {shape.begin() + 1, shape.end()};
}

std::string text_of(const GraphSpec& graph) {
  std::vector<PortSpec> ports = graph.input_ports();
  for (PortSpec& port : graph.output_ports()) ports.push_back(std::move(port));
  const bool later = std::any_of(graph.nodes.begin(), graph.nodes.end(), shares) ||
                     std::any_of(ports.begin(), ports.end(),
                                 [](const PortSpec& port) { return port.batch_axis != 0; });
  Json json{{"format", later ? kLaterFormat : kFormat},
            {"input", to_json(graph.input)},
            {"output", to_json(graph.output)},
            {"sample", graph.sample},
            {"output_sample", graph.output_sample},
            {"head", graph.head},
            {"nodes", Json::array()}};
  // Only where there are any: other graphs are as they were before.
  for (const PartSpec& part : graph.parts) json["parts"].push_back(to_json(part));
  for (const PartSpec& part : graph.output_parts) json["output_parts"].push_back(to_json(part));
  for (const NodeSpec& node : graph.nodes) json["nodes"].push_back(to_json(node));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<PortSpec> GraphSpec::input_ports() const { return ports_of(input, parts); }

std::vector<PortSpec> GraphSpec::output_ports() const { return ports_of(output, output_parts); }

std::string GraphSpec::digest() const { return sha256_of(text_of(*this)); }

GraphSpec graph_from(std::string_view text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat && json.at("format") != kLaterFormat) {
      throw std::invalid_argument("expected format " + std::to_string(kFormat) + " or " +
                                  std::to_string(kLaterFormat) + ", got " +
                                  described(json.at("format")));
    }
    GraphSpec graph;
    graph.input = port_from(json.at("input"));
    graph.output = port_from(json.at("output"));
    graph.sample = sample_from(json.at("sample"));
    graph.output_sample = sample_from(json.at("output_sample"));
    require_port_of(graph.input, graph.sample);
    require_port_of(graph.output, graph.output_sample);
    for (const Json& part : json.value("parts", Json::array())) {
      graph.parts.push_back(part_from(part, graph.sample, "input"));
    }
    for (const Json& part : json.value("output_parts", Json::array())) {
      graph.output_parts.push_back(part_from(part, graph.output_sample, "output"));
    }
    json.at("head").get_to(graph.head);
    if (graph.head != "" && graph.head != "Softmax" && graph.head != "LogSoftmax" &&
        graph.head != "Sigmoid") {
      throw std::invalid_argument("unknown head");
    }
    if (json.at("nodes").size() > kMostNodes) throw std::invalid_argument("too many nodes");
    for (const Json& node : json.at("nodes")) graph.nodes.push_back(node_from(node));
    return graph;
  } catch (const nlohmann::json::exception& error) {
    throw InputError(source + ": graph: " + printable(error.what()));
  } catch (const std::invalid_argument& error) {
    throw InputError(source + ": graph: " + printable(error.what()));
  }
}

std::shared_ptr<Module> build(const GraphSpec& graph, bool with_head, const std::string& source) {
  try {
    const std::shared_ptr<Graph> module = assembled(graph, with_head);
    require_output(graph, *module);
    return module;
  } catch (const std::invalid_argument& error) {
    throw InputError(source + ": graph: " + printable(error.what(), 4096));
  }
}

std::shared_ptr<Module> build_head(const GraphSpec& graph) {
  return made({kHeadNode, graph.head, {}});
}

std::string shared_text(const GraphSpec& graph) {
  std::set<std::string> owners;
  std::size_t places = 0;
  for (const NodeSpec& node : graph.nodes) {
    if (!shares(node)) continue;
    places += owners.insert(node.weights_of).second ? 2 : 1;
  }
  if (owners.empty()) return "";
  return std::to_string(owners.size()) + (owners.size() == 1 ? " module is" : " modules are") +
         " used at " + std::to_string(places) + " places";
}

std::string outputs_text(const GraphSpec& graph) {
  if (graph.output_parts.empty()) return shape_string(graph.output_sample);
  DatasetNames names;
  for (const PartSpec& part : graph.output_parts) {
    names.inputs.push_back({part.port.name, part.shape});
  }
  return sample_form_text(DType::kF32, graph.output_sample, names);
}

std::string to_string(const GraphSpec& graph) {
  std::string text;
  std::size_t width = graph.head.empty() ? 0 : std::string_view(kHeadNode).size();
  for (const NodeSpec& node : graph.nodes) width = std::max(width, node.name.size());
  const auto line = [&](const NodeSpec& node) {
    text += node.name + std::string(width + 2 - std::min(width, node.name.size()), ' ');
    text += node.type == kEmbeddingHead ? node.type : made(node)->description();
    if (shares(node)) text += " with the weights of " + node.weights_of;
    text += " <-";
    for (const std::string& input : node.inputs) text += " " + input;
    text += "\n";
  };
  for (const NodeSpec& node : graph.nodes) line(node);
  if (!graph.head.empty()) line({kHeadNode, graph.head, {output_name(graph)}});
  return text;
}

}  // namespace steelyard::imports
