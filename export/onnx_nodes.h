// Writes the nodes of a validated graph and what they read as ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/export/graph.h"
#include "steelyard/export/onnx.h"
#include "steelyard/export/onnx_graph.h"

namespace steelyard::deploy {

// Throws InputError.
[[noreturn]] void refuse_onnx(const Node& node, const std::string& why);

// Kernel, strides and padding.
std::vector<OnnxAttribute> window_attributes(const Pool2dGeometry& pool);

// What the nodes call an input or output: its name, and another one where it is transposed.
std::string inner_name(const Port& port, const Shape& shape);

// What the rows of the operations write with.
class OnnxNodes {
 public:
  OnnxNodes(const Graph& graph, const OnnxOptions& options, OnnxGraph& onnx)
      : graph_(graph), options_(options), onnx_(onnx) {}

  void add_all();

  const Graph& graph() const { return graph_; }
  const OnnxOptions& options() const { return options_; }
  OnnxGraph& onnx() const { return onnx_; }

  // The f32 tensor of a value: of the float itself, or dequantized.
  std::string tensor(std::size_t value) const;
  std::string input(const Node& node, std::size_t i = 0) const { return tensor(node.inputs[i]); }

  // How codes of this quantization are stored, and the zero point's byte of those of 8 bits.
  OnnxType code_type(const Quantization& q) const;
  std::int8_t stored_zero_point(const Quantization& q) const;
  // An initializer of that zero point, repeated; returns its name.
  std::string zero_points(const std::string& name, const Quantization& q, const Shape& shape) const;

  // The tensors "PREFIX/codes" and `output` of `real`, on the grid of the node's output.
  void quantize_and_back(const Node& node, const std::string& real, const std::string& prefix,
                         const std::string& output);

 private:
  void add(const Node& node);
  // Quantizes `real` to the node's output value and dequantizes that.
  void quantize(const Node& node, const std::string& real);
  // `real` within the values of a range of codes.
  void clip(const Node& node, kernels::CodeRange range, const std::string& real,
            const std::string& output);
  bool stored_as_s8(const Quantization& q) const;

  const Graph& graph_;
  OnnxOptions options_;
  OnnxGraph& onnx_;
};

}  // namespace steelyard::deploy
