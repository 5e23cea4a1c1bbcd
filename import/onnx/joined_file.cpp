#include "steelyard/import/onnx/joined_file.h"

#include <onnx.pb.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/onnx/newer_nodes.h"
#include "steelyard/import/onnx/onnx_tensors.h"

namespace steelyard::imports {
namespace {

onnx::ModelProto read_model(const std::filesystem::path& path) {
  onnx::ModelProto model;
  if (model.ParseFromString(read_file(path, INT_MAX)) && model.has_graph()) return model;
  throw InputError(printable(path.string()) + ": not an ONNX model, or truncated");
}

void write_model(const onnx::ModelProto& model, const std::filesystem::path& path) {
  std::string bytes;
  if (model.ByteSizeLong() > INT_MAX || !model.SerializeToString(&bytes)) {
    throw InputError(printable(path.string()) + ": an ONNX file holds at most " +
                     std::to_string(INT_MAX) + " bytes, the model needs " +
                     std::to_string(model.ByteSizeLong()));
  }
  write_file_atomic(path, bytes);
}

bool is_onnx_domain(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

int opset_in(const onnx::ModelProto& model) {
  for (const onnx::OperatorSetIdProto& set : model.opset_import()) {
    if (is_onnx_domain(set.domain())) return static_cast<int>(set.version());
  }
  return 0;
}

// What a node reads, in the graphs inside of it as well.
std::vector<std::string> read_by(const onnx::NodeProto& node) {
  std::vector<std::string> names(node.input().begin(), node.input().end());
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    for (const onnx::NodeProto& inner : attribute.g().node()) {
      for (std::string& name : read_by(inner)) names.push_back(std::move(name));
    }
    for (const auto& output : attribute.g().output()) names.push_back(output.name());
  }
  return names;
}

// The values from which the outputs come, up to those where the graph is cut.
std::set<std::string> values_behind(const onnx::GraphProto& graph,
                                    const std::set<std::string>& cut) {
  std::map<std::string, const onnx::NodeProto*> makers;
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) makers[output] = &node;
  }
  std::vector<std::string> waiting;
  for (const auto& output : graph.output()) waiting.push_back(output.name());
  std::set<std::string> found;
  while (!waiting.empty()) {
    const std::string value = std::move(waiting.back());
    waiting.pop_back();
    if (value.empty() || !found.insert(value).second || cut.contains(value)) continue;
    const auto maker = makers.find(value);
    if (maker == makers.end()) continue;
    for (std::string& input : read_by(*maker->second)) waiting.push_back(std::move(input));
  }
  return found;
}

bool makes_one_of(const onnx::NodeProto& node, const std::set<std::string>& values,
                  const std::set<std::string>& cut) {
  return std::any_of(node.output().begin(), node.output().end(), [&](const std::string& output) {
    return values.contains(output) && !cut.contains(output);
  });
}

// Gives what a file has inside other names where the other file has the same.
void rename_inside(onnx::GraphProto& graph, const std::set<std::string>& taken) {
  std::set<std::string> kept;
  for (const auto& input : graph.input()) kept.insert(input.name());
  for (const auto& output : graph.output()) kept.insert(output.name());
  const auto renamed = [&](const std::string& name) {
    return name.empty() || kept.contains(name) || !taken.contains(name) ? name : "integer/" + name;
  };
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    tensor.set_name(renamed(tensor.name()));
  }
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    node.set_name(renamed(node.name()));
    for (std::string& input : *node.mutable_input()) input = renamed(input);
    for (std::string& output : *node.mutable_output()) output = renamed(output);
  }
}

std::set<std::string> names_in(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const auto& node : graph.node()) {
    names.insert(node.name());
    names.insert(node.output().begin(), node.output().end());
  }
  return names;
}

void set_opset(onnx::ModelProto& model, int opset, const std::filesystem::path& path) {
  rewrite_nodes(*model.mutable_graph(), opset_in(model), opset, printable(path.string()));
  for (onnx::OperatorSetIdProto& set : *model.mutable_opset_import()) {
    if (is_onnx_domain(set.domain())) set.set_version(opset);
  }
}

// What computes the outputs of a file from values and the inputs, as a file of its own.
onnx::ModelProto rest_of(onnx::ModelProto model, const std::filesystem::path& path,
                         const std::set<std::string>& cut) {
  onnx::GraphProto graph;
  graph.Swap(model.mutable_graph());
  onnx::GraphProto& rest = *model.mutable_graph();
  rest.set_name(graph.name());
  const std::set<std::string> values = values_behind(graph, cut);
  std::set<std::string> constants;
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    constants.insert(tensor.name());
    if (!values.contains(tensor.name())) continue;
    take_external(tensor, path, "initializer " + in_quotes(tensor.name()));
    *rest.add_initializer() = tensor;
  }
  for (const onnx::ValueInfoProto& input : graph.input()) {
    const bool read = values.contains(input.name()) && !constants.contains(input.name());
    if (read) *rest.add_input() = input;
  }
  for (const std::string& name : cut) {
    if (!values.contains(name)) continue;
    onnx::ValueInfoProto& input = *rest.add_input();
    input.set_name(name);
    input.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  }
  for (const onnx::NodeProto& node : graph.node()) {
    if (makes_one_of(node, values, cut)) *rest.add_node() = node;
  }
  for (const onnx::ValueInfoProto& output : graph.output()) {
    if (!cut.contains(output.name())) *rest.add_output() = output;
  }
  return model;
}

}  // namespace

void join_files(const std::filesystem::path& source, const std::filesystem::path& body,
                const std::filesystem::path& rest, const std::filesystem::path& joined) {
  onnx::ModelProto whole = read_model(source), model = read_model(body);
  const int opset = std::max(opset_in(whole), opset_in(model));
  std::set<std::string> cut;
  for (const auto& output : model.graph().output()) cut.insert(output.name());
  const auto inputs = whole.graph().input();
  const auto outputs = whole.graph().output();
  onnx::ModelProto behind = rest_of(std::move(whole), source, cut);
  set_opset(behind, opset, source);
  write_model(behind, rest);

  set_opset(model, opset, body);
  model.set_ir_version(std::max(model.ir_version(), behind.ir_version()));
  for (const onnx::OperatorSetIdProto& set : behind.opset_import()) {
    if (!is_onnx_domain(set.domain())) *model.add_opset_import() = set;
  }
  *model.mutable_functions() = behind.functions();
  onnx::GraphProto& graph = *model.mutable_graph();
  rename_inside(graph, names_in(behind.graph()));
  std::set<std::string> read;
  for (const auto& input : graph.input()) read.insert(input.name());
  for (const auto& input : behind.graph().input()) read.insert(input.name());
  graph.mutable_initializer()->MergeFrom(behind.graph().initializer());
  graph.mutable_node()->MergeFrom(behind.graph().node());
  graph.clear_input();
  for (const onnx::ValueInfoProto& input : inputs) {
    if (read.contains(input.name())) *graph.add_input() = input;
  }
  *graph.mutable_output() = outputs;
  write_model(model, joined);
}

}  // namespace steelyard::imports
