#include "steelyard/import/onnx_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx.pb.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <set>

#include "steelyard/framework/error.h"
#include "steelyard/framework/file_kind.h"
#include "steelyard/framework/files.h"
#include "steelyard/framework/sha256.h"
#include "steelyard/import/attribute_types.h"

namespace steelyard::imports {
namespace {

constexpr std::uint64_t kMaxFileBytes = INT_MAX;  // what protobuf can read
constexpr std::int64_t kMaxElements = std::int64_t{1} << 30;
constexpr int kMaxNodes = 1 << 20;
constexpr int kMaxRank = 64;

std::string in_quotes(const std::string& text) { return "'" + printable(text) + "'"; }

std::string in_small_letters(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::string type_name(int type) {
  const bool known = onnx::TensorProto::DataType_IsValid(type);
  if (!known) return "number " + std::to_string(type);
  return in_small_letters(
      onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type)));
}

// --- tensors

// How a type's elements are stored in raw_data.
template <typename T>
struct Stored {
  using type = T;
};
struct Half {
  std::uint16_t bits;
};
struct BrainFloat {
  std::uint16_t bits;
};

float value_of(Half half) {
  Tensor narrow = Tensor::empty({1}, DType::kF16);
  std::memcpy(narrow.raw(), &half, sizeof half);
  return narrow.to(DType::kF32).data<float>()[0];
}
float value_of(BrainFloat number) {
  const std::uint32_t bits = std::uint32_t{number.bits} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T value_of(T value) {
  return value;
}

class TensorReader {
 public:
  TensorReader(const onnx::TensorProto& proto, const std::filesystem::path& file, std::string what)
      : proto_(proto), file_(file), what_(std::move(what)) {}

  Constant read() {
    read_shape();
    read_bytes();
    switch (proto_.data_type()) {
      case onnx::TensorProto::FLOAT:
        return floats<float>(proto_.float_data());
      case onnx::TensorProto::DOUBLE:
        return floats<double>(proto_.double_data());
      case onnx::TensorProto::FLOAT16:
        return floats<Half>(proto_.int32_data());
      case onnx::TensorProto::BFLOAT16:
        return floats<BrainFloat>(proto_.int32_data());
      case onnx::TensorProto::INT64:
        return integers<std::int64_t>(proto_.int64_data());
      case onnx::TensorProto::INT32:
        return integers<std::int32_t>(proto_.int32_data());
      case onnx::TensorProto::INT16:
        return integers<std::int16_t>(proto_.int32_data());
      case onnx::TensorProto::INT8:
        return integers<std::int8_t>(proto_.int32_data());
      case onnx::TensorProto::UINT16:
        return integers<std::uint16_t>(proto_.int32_data());
      case onnx::TensorProto::UINT8:
      case onnx::TensorProto::BOOL:
        return integers<std::uint8_t>(proto_.int32_data());
      case onnx::TensorProto::UINT32:
        return integers<std::uint32_t>(proto_.uint64_data());
      default:
        fail("expected a tensor of numbers or booleans, got type " + type_name(proto_.data_type()));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(printable(file_.string()) + ": " + what_ + ": " + why);
  }

  void read_shape() {
    if (proto_.dims_size() > kMaxRank) {
      fail("expected at most " + std::to_string(kMaxRank) + " dimensions, got " +
           std::to_string(proto_.dims_size()));
    }
    std::int64_t size = 1, of_others = 1;  // than 0: strides are products of some of them
    for (const std::int64_t dim : proto_.dims()) {
      constant_.shape.push_back(dim);
      if (dim < 0 || (dim > 0 && of_others > kMaxElements / dim)) {
        fail("expected a shape of at most " + std::to_string(kMaxElements) + " elements, got " +
             shape_string({proto_.dims().begin(), proto_.dims().end()}));
      }
      if (dim > 0) of_others *= dim;
      size *= dim;
    }
    size_ = static_cast<std::size_t>(size);
  }

  void read_bytes() {
    if (proto_.data_location() == onnx::TensorProto::EXTERNAL) {
      external_ = read_external();
      bytes_ = &external_;
    } else if (proto_.has_raw_data()) {
      bytes_ = &proto_.raw_data();
    }
  }

  std::uint64_t number(const std::string& text, const char* key) const {
    if (text.empty() || text.size() > 18 ||
        text.find_first_not_of("0123456789") != std::string::npos) {
      fail(std::string("external data: ") + key + ": expected a whole number, got " +
           in_quotes(text));
    }
    return std::stoull(text);
  }

  // The tensors' file must lie in the model's folder or below it.
  std::filesystem::path external_path(const std::string& location) const {
    const std::filesystem::path relative(location);
    const bool climbs = std::any_of(relative.begin(), relative.end(),
                                    [](const auto& part) { return part == ".."; });
    if (location.empty() || relative.is_absolute() || climbs ||
        location.find('\0') != std::string::npos) {
      fail("external data: expected a file in the model's folder, got " + in_quotes(location));
    }
    const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : ".";
    std::error_code error;
    const auto real_folder = std::filesystem::canonical(folder, error);
    const auto real_file = std::filesystem::weakly_canonical(folder / relative, error);
    const auto differs =
        std::mismatch(real_folder.begin(), real_folder.end(), real_file.begin(), real_file.end());
    if (error || differs.first != real_folder.end()) {
      fail("external data: expected a file in the model's folder, got " + in_quotes(location));
    }
    return folder / relative;
  }

  std::string read_external() const {
    std::string location;
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length;
    for (const onnx::StringStringEntryProto& entry : proto_.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = number(entry.value(), "offset");
      if (entry.key() == "length") length = number(entry.value(), "length");
    }
    const InputFile file(external_path(location));
    if (offset > file.size() || length.value_or(0) > file.size() - offset) {
      fail("external data: " + in_quotes(location) + " has " + std::to_string(file.size()) +
           " bytes, expected " + std::to_string(length.value_or(0)) + " from byte " +
           std::to_string(offset));
    }
    const std::uint64_t bytes = length.value_or(file.size() - offset);
    if (bytes > size_ * sizeof(double)) {
      fail("external data: " + std::to_string(bytes) + " bytes are too many for the shape " +
           shape_string(constant_.shape));
    }
    std::string data(bytes, '\0');
    file.read(offset, data.data(), bytes);
    return data;
  }

  // Calls f(i, element) for each element, from the bytes or the field of the type.
  template <typename T, typename Field, typename F>
  void for_each(const Field& field, const F& f) const {
    if (bytes_ != nullptr) {
      if (bytes_->size() != size_ * sizeof(T)) {
        fail("expected " + std::to_string(size_ * sizeof(T)) + " bytes for the shape " +
             shape_string(constant_.shape) + ", got " + std::to_string(bytes_->size()));
      }
      for (std::size_t i = 0; i < size_; ++i) {
        T value;
        std::memcpy(&value, bytes_->data() + i * sizeof(T), sizeof(T));
        f(i, value_of(value));
      }
      return;
    }
    if (static_cast<std::size_t>(field.size()) != size_) {
      fail("expected " + std::to_string(size_) + " values for the shape " +
           shape_string(constant_.shape) + ", got " + std::to_string(field.size()));
    }
    for (std::size_t i = 0; i < size_; ++i) {
      const auto value = field.Get(static_cast<int>(i));
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BrainFloat>) {
        f(i, value_of(T{static_cast<std::uint16_t>(value)}));
      } else {
        f(i, value_of(static_cast<T>(value)));
      }
    }
  }

  template <typename T, typename Field>
  Constant floats(const Field& field) {
    constant_.floating = true;
    for_each<T>(field, [&](std::size_t i, auto value) {
      if (i == 0) constant_.reals.resize(size_);
      constant_.reals[i] = static_cast<float>(value);
    });
    return std::move(constant_);
  }

  template <typename T, typename Field>
  Constant integers(const Field& field) {
    for_each<T>(field, [&](std::size_t i, auto value) {
      if (i == 0) constant_.integers.resize(size_);
      constant_.integers[i] = {static_cast<std::int64_t>(value)};
    });
    return std::move(constant_);
  }

  const onnx::TensorProto& proto_;
  const std::filesystem::path& file_;
  std::string what_;
  Constant constant_;
  std::size_t size_ = 0;
  std::string external_;
  const std::string* bytes_ = nullptr;
};

// --- the model

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
      model_.initializers.emplace(tensor.name(), read_constant(tensor, what));
    }
    for (const onnx::ValueInfoProto& input : graph.input()) {
      if (model_.initializers.contains(input.name())) continue;  // as older files have it
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

  void read_node(const onnx::NodeProto& proto) {
    OnnxNode node{.name = proto.name(),
                  .op = proto.op_type(),
                  .domain = proto.domain() == "ai.onnx" ? "" : proto.domain(),
                  .inputs = {proto.input().begin(), proto.input().end()},
                  .outputs = {proto.output().begin(), proto.output().end()}};
    const std::string what = "node " + in_quotes(node.label()) + " (" + printable(node.op) + ")";
    // What has it was made here, and is not checked again.
    if (node.domain == kOwnDomain) {
      fail(what + ": files have no operations of the domain '" + kOwnDomain + "'");
    }
    for (const std::string& output : node.outputs) {
      if (!output.empty() && !made_.insert(output).second) {
        fail(what + ": the value " + in_quotes(output) + " is made by another node already");
      }
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
    const bool is_read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [](const std::string& output) { return !output.empty(); });
    if (is_read) model_.nodes.push_back(std::move(node));
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
    Constant constant = TensorReader(tensor, path_, what).read();
    model_.foldable_bytes += 8 * constant.bytes();
    return constant;
  }

  // Nothing for a kind that no supported operation has: subgraphs, sparse tensors.
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
        return read_constant(attribute.t(), node + ": attribute " + in_quotes(attribute.name()));
      default:
        return std::nullopt;
    }
  }

  // Each after those whose outputs it reads, otherwise as the file has them.
  void sort_nodes() {
    std::set<std::string> there{""};
    for (const auto& [name, tensor] : model_.initializers) there.insert(name);
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
    for (std::size_t i = 0; i < missing.size(); ++i) {
      if (missing[i] == 0) continue;
      fail("node " + in_quotes(model_.nodes[i].label()) + " (" + printable(model_.nodes[i].op) +
           ") waits for its own output: the graph has a cycle");
    }
  }

  const onnx::ModelProto& proto_;
  const std::filesystem::path& path_;
  OnnxModel model_;
  std::set<std::string> made_;
};

}  // namespace

bool can_read_onnx() { return true; }

OnnxModel read_onnx(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kMaxFileBytes);
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
  return TensorReader(proto, path, "tensor '" + printable(proto.name()) + "'").read();
}

}  // namespace steelyard::imports
