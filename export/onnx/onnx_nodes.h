// Writes the nodes of a validated graph and what they read as ONNX.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "steelyard/export/onnx/onnx.h"
#include "steelyard/export/onnx/onnx_graph.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

// Throws InputError.
[[noreturn]] void refuse_onnx(const Node& node, const std::string& why);

// Kernel, strides and padding.
std::vector<OnnxAttribute> window_attributes(const Pool2dGeometry& pool);

// Whether the file holds each value as [N, C, H, W]: of three dimensions, and made by operations on
// images or from such values. Others have the graph's order.
std::vector<bool> channels_first(const Graph& graph);

// The writer that the rows of the operations use.
class OnnxNodes {
 public:
  OnnxNodes(const Graph& graph, const OnnxOptions& options, OnnxGraph& onnx)
      : graph_(graph), options_(options), onnx_(onnx), channels_first_(channels_first(graph)) {}

  // From the input to the output, as their ports lay them out.
  void add_all();

  const Graph& graph() const { return graph_; }
  const OnnxOptions& options() const { return options_; }
  OnnxGraph& onnx() const { return onnx_; }

  // The f32 tensor of a value as the file holds it: of the float itself, or dequantized.
  std::string tensor(std::size_t value) const;
  // The tensor() of a value for a node that reads it. Where a float operation lies between codes,
  // ONNX Runtime computes it on codes; and it quantizes float weights itself (1.20 and later,
  // WeightBiasQuantization), also where reshapes and transposes lie between. It looks for what was
  // dequantized, and does not look through a Max of one value, which float operations read. Nor
  // does it merge a Pad of zeros with a pool behind it then, as 1.30 does: MaxPool pads with less
  // than any value, and a border as wide as the window is refused.
  std::string read_by(const Node& node, std::size_t value);
  // The dimension in that tensor of a sample's dimension.
  std::int64_t held_axis(std::size_t value, std::size_t axis) const;

  // The tensor of an input in the order that the node's operation reads and makes.
  std::string input(const Node& node, std::size_t i = 0);
  // The input() of an operation that is computed in float even if its output is quantized.
  std::string input_of_floats(const Node& node, std::size_t i = 0);
  // The tensor of its codes in that order.
  std::string codes(const Node& node, std::size_t i = 0);
  // The dimension of such a tensor, and of the output's.
  std::int64_t axis(const Node& node, std::size_t axis) const;
  // The operand at a place in that order: an input, or a constant that broadcasts.
  std::string operand(const Node& node, std::size_t place);

  // How codes of this quantization are stored, and the zero point's byte of those of 8 bits.
  OnnxType code_type(const Quantization& q) const;
  std::int8_t stored_zero_point(const Quantization& q) const;
  // Makes `tensor`, in the order in which the file holds the value, of the input of that port.
  void take(const Port& port, std::size_t value, const std::string& tensor);
  // Makes a value an output of the file, as the port says.
  void give(std::size_t value, const Port& port);
  // An initializer of that zero point; returns its name.
  std::string zero_point(const std::string& name, const Quantization& q) const;

  // The tensors "PREFIX/codes" and `output` of `real`, on the grid of the node's output.
  void quantize_and_back(const Node& node, const std::string& real, const std::string& prefix,
                         const std::string& output);

 private:
  // The port that the value's own tensor is, but for its layout; null where none is.
  const Port* port_of(std::size_t value) const;
  // The dimension of a sample and the batch (0) at each of the value's tensor, and of the port's.
  std::vector<std::int64_t> order_of(std::size_t value) const;
  std::vector<std::int64_t> order_of(const Port& port, std::size_t value) const;
  // The tensor of a value behind a Max of one value.
  std::string behind_max(std::size_t value);
  void add(const Node& node);
  // Quantizes `real` to the node's output value and dequantizes that.
  void quantize(const Node& node, const std::string& real);
  // `real` within the values of a range of codes.
  void clip(const Node& node, kernels::CodeRange range, const std::string& real,
            const std::string& output);
  bool stored_as_s8(const Quantization& q) const;
  // A tensor of the value, turned to the order of the node where that is another.
  std::string in_order(const Node& node, std::size_t value, const std::string& held);

  const Graph& graph_;
  OnnxOptions options_;
  OnnxGraph& onnx_;
  std::vector<bool> channels_first_;
  std::set<std::string> made_;  // names of tensors that several nodes read
};

}  // namespace steelyard::deploy
