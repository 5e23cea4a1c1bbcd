#include "steelyard/import/onnx/onnx_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx.pb.h>

#include <algorithm>
#include <climits>
#include <set>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/onnx/attribute_types.h"
#include "steelyard/import/onnx/onnx_tensors.h"

namespace steelyard::imports {
namespace {

constexpr std::uint64_t kMaxFileBytes = INT_MAX;  // what protobuf can read
constexpr int kMaxNodes = 1 << 20;

template <typename Message>
Message parsed(const std::string& bytes, const std::filesystem::path& path, const char* what) {
  Message message;
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(INT_MAX);
  coded.SetRecursionLimit(64);
  if (message.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage()) return message;
  const std::string kind = kind_of(std::string_view(bytes).substr(0, kFileKindBytes));
  throw InputError(printable(path.string()) + ": not " + what + ", or truncated" +
                   (kind == "an ONNX model" ? std::string() : looks_like(kind)));
}

class ModelReader {
 public:
  ModelReader(const onnx::ModelProto& proto, const std::filesystem::path& path)
      : proto_(proto), path_(path) {
    model_.source = path.string();
    model_.producer = proto.producer_name();
  }

  OnnxModel read() {
    read_opset();
    if (!proto_.has_graph()) fail("holds no graph");
    const onnx::GraphProto& graph = proto_.graph();
    if (graph.node_size() > kMaxNodes) {
      fail("expected at most " + std::to_string(kMaxNodes) + " nodes, got " +
           std::to_string(graph.node_size()));
    }
    if (graph.sparse_initializer_size() > 0) fail("sparse initializers are not supported");
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      if (tensor.name().empty()) fail("an initializer has no name");
      const std::string what = "initializer " + in_quotes(tensor.name());
      if (!made_.insert(tensor.name()).second) fail(what + " is there twice");
      if (holds_numbers(tensor)) {
        model_.initializers.emplace(tensor.name(), read_constant(tensor, what));
      } else {
        model_.unreadable.emplace(tensor.name(), type_name(tensor.data_type()));
      }
    }
    for (const onnx::ValueInfoProto& input : graph.input()) {
      if (is_initializer(input.name())) continue;  // as older files have it
      if (!made_.insert(input.name()).second) fail("two inputs " + in_quotes(input.name()));
      model_.inputs.push_back(port(input));
    }
    for (const onnx::NodeProto& node : graph.node()) read_node(node);
    sort_nodes();
    for (const onnx::ValueInfoProto& output : graph.output()) {
      if (!made_.contains(output.name())) {
        fail("the output " + in_quotes(output.name()) + " is made by no node");
      }
      model_.outputs.push_back(port(output));
    }
    if (model_.inputs.empty()) fail("the graph has no input");
    if (model_.outputs.empty()) fail("the graph has no output");
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(printable(path_.string()) + ": " + why);
  }

  bool is_initializer(const std::string& name) const {
    return model_.initializers.contains(name) || model_.unreadable.contains(name);
  }

  void read_opset() {
    bool found = false;
    for (const onnx::OperatorSetIdProto& set : proto_.opset_import()) {
      if (!set.domain().empty() && set.domain() != "ai.onnx") continue;
      model_.opset = set.version();
      found = true;
    }
    if (!found) fail("names no operation set of ONNX (opset_import)");
    if (model_.opset < kOldestOpset || model_.opset > kNewestOpset) {
      fail("expected an operation set (opset) from " + std::to_string(kOldestOpset) + " to " +
           std::to_string(kNewestOpset) + ", got " + std::to_string(model_.opset));
    }
  }

  OnnxPort port(const onnx::ValueInfoProto& info) const {
    OnnxPort port{.name = info.name(), .type = "unknown"};
    if (!info.type().has_tensor_type()) return port;
    const onnx::TypeProto::Tensor& type = info.type().tensor_type();
    port.type = type_name(type.elem_type());
    for (const auto& dim : type.shape().dim()) {
      OnnxDim size{.size = std::nullopt, .name = dim.dim_param()};
      // Some exporters write -1 for a free one.
      if (dim.has_dim_value() && dim.dim_value() > 0) size.size = dim.dim_value();
      port.dims.push_back(std::move(size));
    }
    return port;
  }

  static std::string text_of(const OnnxNode& node) {
    return "node " + in_quotes(node.label()) + " (" + printable(node.op) + ")";
  }

  void read_attributes(const onnx::NodeProto& proto, OnnxNode& node) {
    const std::string what = text_of(node);
    // What has it was made here, and is not checked again.
    if (node.domain == kOwnDomain) {
      fail(what + ": files have no operations of the domain '" + kOwnDomain + "'");
    }
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      if (node.domain.empty()) require_type(attribute, what);
      if (node.attributes.contains(attribute.name())) {
        fail(what + ": attribute " + in_quotes(attribute.name()) + " is there twice");
      }
      if (auto value = attribute_value(attribute, what)) {
        node.attributes.emplace(attribute.name(), std::move(*value));
      }
    }
  }

  static OnnxNode plain_node(const onnx::NodeProto& proto) {
    return {.name = proto.name(),
            .op = proto.op_type(),
            .domain = proto.domain() == "ai.onnx" ? "" : proto.domain(),
            .inputs = {proto.input().begin(), proto.input().end()},
            .outputs = {proto.output().begin(), proto.output().end()}};
  }

  void read_node(const onnx::NodeProto& proto) {
    OnnxNode node = plain_node(proto);
    const std::string what = text_of(node);
    for (const std::string& output : node.outputs) {
      if (output.empty() || made_.insert(output).second) continue;
      const bool is_input =
          std::any_of(model_.inputs.begin(), model_.inputs.end(),
                      [&](const OnnxPort& input) { return input.name == output; });
      fail(what + ": the value " + in_quotes(output) + " is " +
           (is_initializer(output) ? "an initializer"
            : is_input             ? "an input of the graph"
                                   : "made by another node") +
           " already");
    }
    read_attributes(proto, node);
    read_branches(proto, node, 0);
    const bool is_read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [](const std::string& output) { return !output.empty(); });
    if (is_read) model_.nodes.push_back(std::move(node));
  }

  // The branches of an If, in which names are their own or those of what is outside. Others are
  // left: the node is refused when it is translated.
  void read_branches(const onnx::NodeProto& proto, OnnxNode& node, int depth) {
    constexpr int kDeepest = 16;
    if (node.op != "If" || !node.domain.empty() || depth > kDeepest) return;
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      if (attribute.type() != onnx::AttributeProto::GRAPH) continue;
      auto branch = std::make_shared<OnnxBranch>();
      std::set<std::string> own{""};
      const onnx::GraphProto& graph = attribute.g();
      for (const onnx::TensorProto& tensor : graph.initializer()) {
        if (!holds_numbers(tensor)) continue;
        branch->initializers.emplace(
            tensor.name(), read_constant(tensor, "initializer " + in_quotes(tensor.name())));
        own.insert(tensor.name());
      }
      for (const onnx::NodeProto& inner : graph.node()) {
        branch->nodes.push_back(branch_node(inner, depth));
        for (const std::string& input : branch->nodes.back().inputs) capture(node, own, input);
        own.insert(inner.output().begin(), inner.output().end());
      }
      for (const onnx::ValueInfoProto& output : graph.output()) {
        branch->outputs.push_back(output.name());
        capture(node, own, output.name());
      }
      node.branches.emplace(attribute.name(), std::move(branch));
    }
  }

  OnnxNode branch_node(const onnx::NodeProto& proto, int depth) {
    OnnxNode node = plain_node(proto);
    read_attributes(proto, node);
    read_branches(proto, node, depth + 1);
    return node;
  }

  static void capture(OnnxNode& node, const std::set<std::string>& own, const std::string& name) {
    const bool known = own.contains(name) ||
                       std::find(node.inputs.begin(), node.inputs.end(), name) != node.inputs.end();
    if (!known) node.inputs.push_back(name);
  }

  // One of another type would be taken for one that is not there.
  void require_type(const onnx::AttributeProto& attribute, const std::string& node) const {
    const auto expected = type_of_attribute(attribute.name());
    if (!expected || attribute.type() == *expected) return;
    const auto text = [](onnx::AttributeProto::AttributeType type) {
      return in_small_letters(onnx::AttributeProto::AttributeType_Name(type));
    };
    fail(node + ": attribute " + in_quotes(attribute.name()) + ": expected the type " +
         text(*expected) + ", got " + text(attribute.type()));
  }

  Constant read_constant(const onnx::TensorProto& tensor, const std::string& what) {
    Constant constant = read_tensor(tensor, path_, what);
    model_.foldable_bytes += 8 * constant.bytes();
    return constant;
  }

  // Nothing for a kind that no supported operation has: subgraphs, sparse tensors, texts.
  std::optional<OnnxAttributeValue> attribute_value(const onnx::AttributeProto& attribute,
                                                    const std::string& node) {
    switch (attribute.type()) {
      case onnx::AttributeProto::INT:
        return attribute.i();
      case onnx::AttributeProto::FLOAT:
        return attribute.f();
      case onnx::AttributeProto::STRING:
        return attribute.s();
      case onnx::AttributeProto::INTS:
        return std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end());
      case onnx::AttributeProto::FLOATS:
        return std::vector<float>(attribute.floats().begin(), attribute.floats().end());
      case onnx::AttributeProto::STRINGS:
        return std::vector<std::string>(attribute.strings().begin(), attribute.strings().end());
      case onnx::AttributeProto::TENSOR:
        if (!holds_numbers(attribute.t())) return std::nullopt;
        return read_constant(attribute.t(), node + ": attribute " + in_quotes(attribute.name()));
      default:
        return std::nullopt;
    }
  }

  // Each after those whose outputs it reads, otherwise as the file has them.
  void sort_nodes() {
    std::set<std::string> there{""};
    for (const auto& [name, tensor] : model_.initializers) there.insert(name);
    for (const auto& [name, type] : model_.unreadable) there.insert(name);
    for (const OnnxPort& input : model_.inputs) there.insert(input.name);
    std::map<std::string, std::vector<std::size_t>> waiting;  // for a value
    std::vector<std::size_t> missing(model_.nodes.size(), 0);
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      const OnnxNode& node = model_.nodes[i];
      for (const std::string& input : node.inputs) {
        if (there.contains(input)) continue;
        if (!made_.contains(input)) {
          fail("node " + in_quotes(node.label()) + " (" + printable(node.op) + ") reads " +
               in_quotes(input) + ", which nothing makes");
        }
        waiting[input].push_back(i);
        ++missing[i];
      }
      if (missing[i] == 0) ready.insert(i);
    }
    std::vector<OnnxNode> sorted;
    while (!ready.empty()) {
      const std::size_t i = *ready.begin();
      ready.erase(ready.begin());
      for (const std::string& output : model_.nodes[i].outputs) {
        for (const std::size_t reader : waiting[output]) {
          if (--missing[reader] == 0) ready.insert(reader);
        }
      }
      sorted.push_back(std::move(model_.nodes[i]));
    }
    if (sorted.size() == model_.nodes.size()) {
      model_.nodes = std::move(sorted);
      return;
    }
    fail_on_cycle(missing);
  }

  // Among the nodes for which inputs are missing, from one to the maker of such an input until one
  // comes again: others may only wait for what is in the cycle.
  [[noreturn]] void fail_on_cycle(const std::vector<std::size_t>& missing) const {
    std::map<std::string, std::size_t> makers;
    std::size_t at = missing.size();
    for (std::size_t i = missing.size(); i-- > 0;) {
      if (missing[i] == 0) continue;
      for (const std::string& output : model_.nodes[i].outputs) makers[output] = i;
      at = i;
    }
    makers.erase("");
    for (std::set<std::size_t> seen; seen.insert(at).second;) {
      const std::vector<std::string>& inputs = model_.nodes[at].inputs;
      const auto waits = [&](const std::string& input) { return makers.contains(input); };
      at = makers.at(*std::find_if(inputs.begin(), inputs.end(), waits));
    }
    fail("node " + in_quotes(model_.nodes[at].label()) + " (" + printable(model_.nodes[at].op) +
         ") waits for its own output: the graph has a cycle");
  }

  const onnx::ModelProto& proto_;
  const std::filesystem::path& path_;
  OnnxModel model_;
  std::set<std::string> made_;
};

}  // namespace

bool can_read_onnx() { return true; }

OnnxModel read_onnx(const std::filesystem::path& path) {
  return parse_onnx(read_file(path, kMaxFileBytes), path);
}

OnnxModel parse_onnx(const std::string& bytes, const std::filesystem::path& path) {
  if (bytes.size() > kMaxFileBytes) {
    throw InputError(printable(path.string()) + ": expected at most " +
                     std::to_string(kMaxFileBytes) + " bytes, got " + std::to_string(bytes.size()));
  }
  OnnxModel model =
      ModelReader(parsed<onnx::ModelProto>(bytes, path, "an ONNX model"), path).read();
  model.sha256 = sha256_of(bytes);
  return model;
}

OnnxMetadata read_onnx_metadata(const std::filesystem::path& path) {
  const auto proto =
      parsed<onnx::ModelProto>(read_file(path, kMaxFileBytes), path, "an ONNX model");
  OnnxMetadata metadata{proto.producer_name(), {}};
  for (const onnx::StringStringEntryProto& entry : proto.metadata_props()) {
    if (metadata.properties.emplace(entry.key(), entry.value()).second) continue;
    throw InputError(printable(path.string()) + ": metadata " + in_quotes(entry.key()) +
                     " is there twice");
  }
  return metadata;
}

Constant read_onnx_tensor(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kMaxFileBytes);
  const auto proto = parsed<onnx::TensorProto>(bytes, path, "an ONNX tensor");
  return read_tensor(proto, path, "tensor " + in_quotes(proto.name()));
}

}  // namespace steelyard::imports
