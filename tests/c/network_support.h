// Small ONNX files and networks of them for tests of the C face.
#pragma once

#include <onnx.pb.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "steelyard/c/steelyard_c.h"
#include "tests/c/c_support.h"

namespace steelyard::c_face {

// The bytes of an ONNX file, made node by node.
class OnnxBytes {
 public:
  OnnxBytes() {
    proto_.set_ir_version(7);
    proto_.add_opset_import()->set_version(13);
  }
  OnnxBytes& input(const std::string& name, std::vector<std::int64_t> sample,
                   onnx::TensorProto::DataType type = onnx::TensorProto::FLOAT) {
    add_port(*graph().add_input(), name, sample, type);
    return *this;
  }
  OnnxBytes& output(const std::string& name, std::vector<std::int64_t> sample) {
    add_port(*graph().add_output(), name, sample, onnx::TensorProto::FLOAT);
    return *this;
  }
  // Numbers that differ from weight to weight.
  OnnxBytes& weight(const std::string& name, std::vector<std::int64_t> shape, float base = 0) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    std::size_t size = 1;
    for (const std::int64_t d : shape) {
      tensor.add_dims(d);
      size *= static_cast<std::size_t>(d);
    }
    seed_ += 7;
    for (const float x : wave(size + seed_)) {
      if (static_cast<std::size_t>(tensor.float_data_size()) == size) break;
      tensor.add_float_data(base + 0.3F * x);
    }
    return *this;
  }
  OnnxBytes& node(const std::string& op, std::initializer_list<std::string> inputs,
                  const std::string& output,
                  std::initializer_list<std::pair<std::string, std::int64_t>> integers = {}) {
    onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(op);
    node.set_name(output);
    for (const std::string& name : inputs) node.add_input(name);
    node.add_output(output);
    for (const auto& [name, value] : integers) {
      onnx::AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(name);
      attribute.set_type(onnx::AttributeProto::INT);
      attribute.set_i(value);
    }
    return *this;
  }
  std::string bytes() const { return proto_.SerializeAsString(); }

 private:
  onnx::GraphProto& graph() { return *proto_.mutable_graph(); }
  static void add_port(onnx::ValueInfoProto& port, const std::string& name,
                       const std::vector<std::int64_t>& sample, onnx::TensorProto::DataType type) {
    port.set_name(name);
    auto& tensor = *port.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape()->add_dim()->set_dim_param("N");
    for (const std::int64_t d : sample) {
      auto& dim = *tensor.mutable_shape()->add_dim();
      d == 0 ? dim.set_dim_param("free") : dim.set_dim_value(d);
    }
  }

  onnx::ModelProto proto_;
  std::size_t seed_ = 0;
};

// [N, 4] to [N, 3] by way of 8.
inline std::string two_layers() {
  return OnnxBytes()
      .input("x", {4})
      .output("y", {3})
      .weight("fc1.weight", {8, 4})
      .weight("fc1.bias", {8})
      .weight("fc2.weight", {3, 8})
      .weight("fc2.bias", {3})
      .node("Gemm", {"x", "fc1.weight", "fc1.bias"}, "hidden", {{"transB", 1}})
      .node("Relu", {"hidden"}, "relu")
      .node("Gemm", {"relu", "fc2.weight", "fc2.bias"}, "y", {{"transB", 1}})
      .bytes();
}

// Images [N, 2, 5, 6] to images [N, 3, 5, 6], with a batch norm.
inline std::string image_layers() {
  return OnnxBytes()
      .input("pixels", {2, 5, 6})
      .output("y", {3, 5, 6})
      .weight("conv.weight", {3, 2, 1, 1})
      .weight("bn.weight", {3}, 1)
      .weight("bn.bias", {3})
      .weight("bn.mean", {3})
      .weight("bn.var", {3}, 2)
      .node("Conv", {"pixels", "conv.weight"}, "conv")
      .node("BatchNormalization", {"conv", "bn.weight", "bn.bias", "bn.mean", "bn.var"}, "norm")
      .node("Relu", {"norm"}, "y")
      .bytes();
}

// The sum of a layer of "a" [N, 4] and one of "b" [N, 2].
inline std::string two_inputs() {
  return OnnxBytes()
      .input("a", {4})
      .input("b", {2})
      .output("y", {3})
      .weight("fa.weight", {3, 4})
      .weight("fa.bias", {3})
      .weight("fb.weight", {3, 2})
      .weight("fb.bias", {3})
      .node("Gemm", {"a", "fa.weight", "fa.bias"}, "left", {{"transB", 1}})
      .node("Gemm", {"b", "fb.weight", "fb.bias"}, "right", {{"transB", 1}})
      .node("Add", {"left", "right"}, "y")
      .bytes();
}

inline const std::string kFloatRecipe = "version: 1\nname: float\n";
inline std::string quantized_recipe(const std::string& layer) {
  return "version: 1\nname: w8a8\nquantize:\n  groups:\n    - targets: [" + layer +
         "]\n      weights: {num_bits: 8, symmetric: true, strategy: channel}\n"
         "      activations: {num_bits: 8, symmetric: false}\n";
}
inline const std::string kQuantizedRecipe = quantized_recipe("Linear");
inline const std::string kQuantizedImages = quantized_recipe("Conv2d");

// A network with a context of its own.
struct Network {
  Network(const std::string& onnx, const std::string& recipe, DLDevice device = {kDLCPU, 0}) {
    steelyard_network_descriptor d;
    steelyard_network_descriptor_init(&d, sizeof d);
    d.onnx = onnx.data();
    d.onnx_bytes = onnx.size();
    d.recipe = recipe.c_str();
    d.device = device;
    create(d);
  }
  explicit Network(const steelyard_network_descriptor& d) { create(d); }
  ~Network() { steelyard_network_destroy(network); }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // What a function did with the context and the network.
  template <typename F, typename... Arguments>
  void expect_ok(const F& function, const Arguments&... arguments) {
    EXPECT_EQ(function(context, network, arguments...), STEELYARD_OK) << context.message();
  }
  template <typename F, typename... Arguments>
  std::string refusal(steelyard_status expected, const F& function, const Arguments&... arguments) {
    EXPECT_EQ(function(context, network, arguments...), expected) << context.message();
    return context.message();
  }

  void create(const steelyard_network_descriptor& d) {
    EXPECT_EQ(steelyard_network_create(context, &d, &network), STEELYARD_OK) << context.message();
  }

  Context context;
  steelyard_network* network = nullptr;
};

using Managed = std::unique_ptr<DLManagedTensor, Destroy>;

struct EndPass {
  void operator()(steelyard_pass* pass) const { steelyard_pass_destroy(pass); }
};
using Pass = std::unique_ptr<steelyard_pass, EndPass>;

inline std::vector<float> floats_in(const DLManagedTensor& tensor) {
  std::int64_t size = 1;
  for (int i = 0; i < tensor.dl_tensor.ndim; ++i) size *= tensor.dl_tensor.shape[i];
  const auto* data = static_cast<const float*>(tensor.dl_tensor.data);
  return {data, data + size};
}

// The output of a pass, which it gives where `pass` is not null.
inline std::vector<float> forward(Network& n, std::vector<const DLTensor*> inputs,
                                  Pass* pass = nullptr, int input_gradients = 0) {
  DLManagedTensor* output = nullptr;
  steelyard_pass* made = nullptr;
  EXPECT_EQ(steelyard_network_forward(n.context, n.network, nullptr, inputs.size(), inputs.data(),
                                      input_gradients, &output, pass == nullptr ? nullptr : &made),
            STEELYARD_OK)
      << n.context.message();
  if (pass != nullptr) pass->reset(made);
  const Managed owned(output);
  return output == nullptr ? std::vector<float>() : floats_in(*output);
}

// Empty where there is none.
inline std::vector<float> gradient(Network& n, const char* parameter) {
  DLManagedTensor* view = nullptr;
  n.expect_ok(steelyard_network_gradient, parameter, &view);
  const Managed owned(view);
  return view == nullptr ? std::vector<float>() : floats_in(*view);
}

inline std::vector<std::string> names(Network& n, std::int32_t kind) {
  std::size_t count = 0;
  n.expect_ok(steelyard_network_count, kind, &count);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    n.expect_ok(steelyard_network_name, kind, i, &name);
    all.emplace_back(name == nullptr ? "" : name);
  }
  return all;
}

}  // namespace steelyard::c_face
