#include "steelyard/export/onnx/onnx.h"

#include <onnx.pb.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/op_form.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/file_order.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/runtime/preprocessing_json.h"

namespace steelyard::deploy {
namespace {

// TensorProto.DataType of ONNX 1.16 and later; Debian's onnx.proto is older.
constexpr int kOnnxInt4 = 22;

int data_type(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return onnx::TensorProto::FLOAT;
    case OnnxType::kInt32:
      return onnx::TensorProto::INT32;
    case OnnxType::kInt64:
      return onnx::TensorProto::INT64;
    case OnnxType::kInt16:
      return onnx::TensorProto::INT16;
    case OnnxType::kUint16:
      return onnx::TensorProto::UINT16;
    case OnnxType::kInt8:
      return onnx::TensorProto::INT8;
    case OnnxType::kUint8:
      return onnx::TensorProto::UINT8;
    case OnnxType::kInt4:
      break;
  }
  return kOnnxInt4;
}

class ProtoGraph : public OnnxGraph {
 public:
  ProtoGraph(onnx::GraphProto& proto, bool copies_signed)
      : proto_(proto), copies_signed_(copies_signed) {
    for (const onnx::ValueInfoProto& input : proto.input()) require_new(input.name());
  }

  void add_all(const std::string& operation, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs,
               const std::vector<OnnxAttribute>& attributes) override {
    onnx::NodeProto& node = *proto_.add_node();
    node.set_op_type(operation);
    node.set_name(outputs[0] + ":" + operation);
    for (const std::string& input : inputs) node.add_input(input);
    for (const std::string& output : outputs) {
      if (!output.empty()) require_new(output);
      node.add_output(output);
    }
    for (const OnnxAttribute& attribute : attributes) set(*node.add_attribute(), attribute);
  }

 private:
  // Weights that several nodes have are written once.
  std::string initializer(const std::string& name, OnnxType type, const Shape& shape,
                          std::string_view bytes) override {
    std::vector<int>& alike = matrices_[{type, shape}];
    if (shape.size() > 1) {
      for (const int i : alike) {
        if (proto_.initializer(i).raw_data() != bytes) continue;
        const std::string& known = proto_.initializer(i).name();
        return type == OnnxType::kInt8 && copies_signed_ ? copy_of(known, name, shape) : known;
      }
      alike.push_back(proto_.initializer_size());
    }
    require_new(name);
    onnx::TensorProto& tensor = *proto_.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(data_type(type));
    for (const std::int64_t dim : shape) tensor.add_dims(dim);
    tensor.set_raw_data(bytes.data(), bytes.size());
    return name;
  }

  // All of a tensor under another name, which ONNX Runtime makes when it loads the file: it does
  // not load one whose signed weights have two readers (1.30, without VNNI, and with
  // session.x64quantprecision = "1"). Each end is another one behind the last row, because equal
  // nodes become one before it looks.
  std::string copy_of(const std::string& known, const std::string& name, const Shape& shape) {
    add("Slice",
        {known, int64s(name + "_first", std::vector<std::int64_t>{0}, {1}),
         int64s(name + "_end", std::vector<std::int64_t>{shape[0] + ++copies_[known]}, {1})},
        name);
    return name;
  }

  // The names of inputs and outputs are somebody else's.
  void require_new(const std::string& name) {
    if (names_.insert(name).second) return;
    throw InputError("export: two ONNX tensors are called '" + printable(name) + "'");
  }

  static void set(onnx::AttributeProto& proto, const OnnxAttribute& attribute) {
    proto.set_name(attribute.name);
    if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
      proto.set_type(onnx::AttributeProto::INT);
      proto.set_i(*number);
    } else if (const auto* real = std::get_if<float>(&attribute.value)) {
      proto.set_type(onnx::AttributeProto::FLOAT);
      proto.set_f(*real);
    } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
      proto.set_type(onnx::AttributeProto::STRING);
      proto.set_s(*text);
    } else {
      proto.set_type(onnx::AttributeProto::INTS);
      for (const std::int64_t value : std::get<std::vector<std::int64_t>>(attribute.value)) {
        proto.add_ints(value);
      }
    }
  }

  onnx::GraphProto& proto_;
  bool copies_signed_;  // each node reads signed weights under a name of its own
  std::set<std::string> names_;
  std::map<std::string, std::int64_t> copies_;  // of an initializer, how many there are
  // Indices of initializers of more than one dimension.
  std::map<std::pair<OnnxType, Shape>, std::vector<int>> matrices_;
};

void check(const Graph& graph) {
  try {
    validate(graph);
  } catch (const std::invalid_argument& error) {
    throw InputError(std::string("export: ") + error.what());
  }
  if (graph.output == graph.input) throw InputError("export: the graph has no operation");
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    if (!names.insert(node.name).second || graph.values[node.output].name != node.name) {
      throw InputError("export: the name " + node.name + " is not that of one node and its output");
    }
  }
}

// INT4, scales of blocks and 16-bit QuantizeLinear need opset 21.
bool needs_opset_21(const Graph& graph, const OnnxOptions& options) {
  const bool wide = std::any_of(graph.values.begin(), graph.values.end(), [](const Value& value) {
    return value.quantization && value.quantization->wide();
  });
  return wide || std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
           if (!node.weights || !node.weights->has_codes()) return false;
           const Weights& weights = *node.weights;
           const bool int4 = options.pack_int4 && weights.bits <= 4;
           return int4 || static_cast<std::int64_t>(weights.scales.size()) != weights.weight.dim(0);
         });
}

int opset_of(const Graph& graph, const OnnxOptions& options) {
  if (needs_opset_21(graph, options)) return 21;
  int opset = 13;
  for (const Node& node : graph.nodes) opset = std::max(opset, op_form(node.op).opset);
  return opset;
}

// A tensor of any number of samples, with the port's free sizes if `free`.
void describe(onnx::ValueInfoProto& info, const Port& port, const Shape& shape, bool free) {
  info.Clear();
  info.set_name(port.name);
  onnx::TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(port.dtype == DType::kI32    ? onnx::TensorProto::INT32
                     : port.dtype == DType::kI64  ? onnx::TensorProto::INT64
                     : port.dtype == DType::kBool ? onnx::TensorProto::BOOL
                                                  : onnx::TensorProto::FLOAT);
  for (const std::int64_t i : file_order(shape.size(), port.channels_last, port.batch_axis)) {
    onnx::TensorShapeProto::Dimension& dim = *type.mutable_shape()->add_dim();
    const auto named = port.free.find(i - 1);
    if (i == 0) {
      dim.set_dim_param(port.batch);
    } else if (!free || named == port.free.end()) {
      dim.set_dim_value(shape[static_cast<std::size_t>(i) - 1]);
    } else if (!named->second.empty()) {
      dim.set_dim_param(named->second);
    }
  }
}

// A tensor or node that is not the same in both; "" where all are.
std::string first_difference(const onnx::GraphProto& a, const onnx::GraphProto& b) {
  const auto differing = [](const auto& own, const auto& other) -> std::string {
    for (int i = 0; i < std::min(own.size(), other.size()); ++i) {
      if (own[i].SerializeAsString() != other[i].SerializeAsString()) return own[i].name();
    }
    if (own.size() == other.size()) return "";
    return own.size() > other.size() ? own[other.size()].name() : other[own.size()].name();
  };
  const std::string tensor = differing(a.initializer(), b.initializer());
  return tensor.empty() ? differing(a.node(), b.node()) : tensor;
}

// Names of files and categories need not be UTF-8.
std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// How the input is computed from the data, for readers that do not know what is done to bytes.
std::string preprocessing_text(const Preprocessing& preprocessing) {
  nlohmann::ordered_json json{{"dtype", dtype_name(preprocessing.dtype)},
                              {"scale", preprocessing.dtype == DType::kU8 ? "1/255" : "1"}};
  json.update(preprocessing_json(preprocessing));
  return text_of(json);
}

void add_metadata(onnx::ModelProto& model, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto& entry = *model.add_metadata_props();
  entry.set_key(key);
  entry.set_value(value);
}

void describe_ports(onnx::GraphProto& proto, const Graph& graph, bool free) {
  proto.clear_input();
  const auto shape_of = [&](std::size_t value) { return graph.values[value].shape; };
  if (graph.input_ports.empty()) {
    describe(*proto.add_input(), graph.input_port, shape_of(graph.input), free);
  }
  for (const PartPort& part : graph.input_ports) {
    describe(*proto.add_input(), part.port, part.shape, free);
  }
  proto.clear_output();
  if (graph.output_ports.empty()) {
    describe(*proto.add_output(), graph.output_port, shape_of(graph.output), free);
  }
  for (const PartPort& part : graph.output_ports) {
    describe(*proto.add_output(), part.port, part.shape, free);
  }
}

// With the sizes of the graph.
onnx::ModelProto fixed_model_of(const Graph& graph, const OnnxOptions& options) {
  const int version = opset_of(graph, options);
  onnx::ModelProto model;
  // The one that came with the set.
  model.set_ir_version(version >= 21 ? 10 : version >= 15 ? 8 : 7);
  onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("");
  opset.set_version(version);
  model.set_producer_name("steelyard");
  add_metadata(model, "preprocessing", preprocessing_text(graph.preprocessing));
  if (!graph.class_names.empty()) {
    add_metadata(model, "class_names", text_of(graph.class_names));
  }
  if (graph.target != TargetKind::kClass) add_metadata(model, "target", word_of(graph.target));
  if (!graph.model_sha256.empty()) add_metadata(model, kModelKey, graph.model_sha256);

  onnx::GraphProto& proto = *model.mutable_graph();
  proto.set_name(graph.name.empty() ? "model" : graph.name);
  describe_ports(proto, graph, /*free=*/false);
  ProtoGraph onnx(proto, options.profile == qat::Profile::kOrt);
  OnnxNodes(graph, options, onnx).add_all();
  return model;
}

std::string what_is_fixed(const onnx::ModelProto& model, const Graph& graph,
                          const OnnxOptions& options) {
  for (const auto& resized : graph.resized) {
    const std::string difference =
        first_difference(model.graph(), fixed_model_of(*resized, options).graph());
    if (!difference.empty()) return difference;
  }
  return "";
}

onnx::ModelProto model_of(const Graph& graph, const OnnxOptions& options) {
  onnx::ModelProto model = fixed_model_of(graph, options);
  const bool free = !graph.resized.empty() && what_is_fixed(model, graph, options).empty();
  if (free) describe_ports(*model.mutable_graph(), graph, free);
  return model;
}

void expect_size(std::uint64_t bytes, const OnnxOptions& options) {
  if (bytes > options.max_bytes) {
    throw InputError("export: an ONNX file holds at most " + std::to_string(options.max_bytes) +
                     " bytes, the model needs " + std::to_string(bytes));
  }
}

}  // namespace

bool can_write_onnx() { return true; }

void write_onnx(const std::filesystem::path& path, const Graph& graph, const OnnxOptions& options) {
  check(graph);
  expect_size(static_cast<std::uint64_t>(parameter_bytes(graph)), options);
  const onnx::ModelProto model = model_of(graph, options);
  expect_size(model.ByteSizeLong(), options);
  std::string bytes;
  if (!model.SerializeToString(&bytes)) {
    throw std::runtime_error("export: the ONNX model could not be serialized");
  }
  write_file_atomic(path, bytes);
}

std::string why_sizes_are_fixed(const Graph& graph, const OnnxOptions& options) {
  if (graph.resized.empty()) return "";
  return what_is_fixed(fixed_model_of(graph, options), graph, options);
}

bool onnx_has_free_sizes(const std::filesystem::path& path) {
  onnx::ModelProto model;
  if (!model.ParseFromString(read_file(path, OnnxOptions().max_bytes))) return false;
  for (const onnx::ValueInfoProto& input : model.graph().input()) {
    const auto& dims = input.type().tensor_type().shape().dim();
    const auto free = std::count_if(dims.begin(), dims.end(),
                                    [](const auto& dim) { return !dim.has_dim_value(); });
    if (free > 1) return true;  // the batch is one
  }
  return false;
}

std::string onnx_model_sha256(const std::filesystem::path& path) {
  onnx::ModelProto model;
  if (!model.ParseFromString(read_file(path, OnnxOptions().max_bytes))) return "";
  for (const onnx::StringStringEntryProto& entry : model.metadata_props()) {
    if (entry.key() == kModelKey) return entry.value();
  }
  return "";
}

}  // namespace steelyard::deploy
