// An ONNX graph under construction. Only the ONNX writer includes this.
#pragma once

#include <onnx.pb.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "steelyard/export/onnx.h"

namespace steelyard::deploy {

// TensorProto.DataType of ONNX 1.16 and later; Debian's onnx.proto is older.
inline constexpr int kOnnxInt4 = 22;

class OnnxGraph {
 public:
  explicit OnnxGraph(onnx::GraphProto& proto) : proto_(proto) {}

  // Initializers; each returns its name.
  std::string floats(const std::string& name, std::span<const float> values, const Shape& shape);
  std::string int32s(const std::string& name, std::span<const std::int32_t> values,
                     const Shape& shape);
  std::string int64s(const std::string& name, std::span<const std::int64_t> values,
                     const Shape& shape);
  // Codes of INT8, UINT8 or INT4, which is packed, the first of two in the low half.
  std::string codes(const std::string& name, int data_type, std::span<const std::int8_t> values,
                    const Shape& shape);

  // A node that makes the tensor `output`; an empty input is an absent one.
  onnx::NodeProto& add(const std::string& operation, const std::vector<std::string>& inputs,
                       const std::string& output);

 private:
  onnx::TensorProto& initializer(const std::string& name, int data_type, const Shape& shape);

  onnx::GraphProto& proto_;
};

void set_attribute(onnx::NodeProto& node, const std::string& name, std::int64_t value);
void set_attribute(onnx::NodeProto& node, const std::string& name,
                   const std::vector<std::int64_t>& values);
void set_attribute(onnx::NodeProto& node, const std::string& name,
                   const std::array<std::int64_t, 2>& pair);

// {top, left, bottom, right}.
std::vector<std::int64_t> pads(const std::array<std::int64_t, 2>& padding);
// Kernel, strides and padding.
void set_window(onnx::NodeProto& node, const Pool2dGeometry& pool);

// Throws InputError.
[[noreturn]] void refuse_onnx(const Node& node, const std::string& why);

// Writes the nodes of a validated graph and what they read.
class OnnxNodes {
 public:
  OnnxNodes(const Graph& graph, const OnnxOptions& options, onnx::GraphProto& proto);

  void add_all();

 private:
  // The f32 tensor of a value: of the float itself, or dequantized.
  std::string tensor(std::size_t value) const;

  void add(const Node& node);
  void add_operation(const Node& node, const std::string& output);
  void add_linear_map(const Node& node, const std::string& output);
  void add_pool(const Node& node, const std::string& output);
  void add_average_of_codes(const Node& node, const std::string& output);
  void expect_computable_average(const Node& node) const;
  void add_activation(kernels::Activation activation, const std::string& input,
                      const std::string& output);

  // The input of a linear map.
  std::string operand(const Node& node);
  std::string weight(const Node& node);
  std::string bias(const Node& node);

  bool stored_as_s8(const Quantization& q) const;
  int code_type(const Quantization& q) const;
  std::int8_t stored_zero_point(const Quantization& q) const;

  // Quantizes `real` to the node's output value and dequantizes that.
  void quantize(const Node& node, const std::string& real);
  // The tensors "PREFIX/codes" and `output` of `real`.
  void quantize_and_back(const Node& node, const std::string& real, const std::string& prefix,
                         const std::string& output);
  // `real` within the values of a range of codes.
  void clip(const Node& node, kernels::CodeRange range, const std::string& real,
            const std::string& output);

  const Graph& graph_;
  OnnxOptions options_;
  OnnxGraph onnx_;
};

}  // namespace steelyard::deploy
