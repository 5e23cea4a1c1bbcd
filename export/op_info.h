// The table of deployed operations: all that the library knows of one is in its row.
//
// Reading a trace, validation, both engines, the ONNX writer, files and texts go through it. A row
// is made in export/ops/<operation>.cpp; op_info.cpp lists them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/export/graph.h"
#include "steelyard/framework/autograd.h"

namespace steelyard::deploy {

class OnnxNodes;

// A node with the tensors of a batch: inputs are among `values`, the result is to be filled.
struct Operands {
  const Graph& graph;
  const Node& node;
  const std::vector<Tensor>& values;
  const Tensor& result;

  const Tensor& input(std::size_t i) const { return values[node.inputs[i]]; }
  const Value& input_value(std::size_t i) const { return graph.values[node.inputs[i]]; }
  const Tensor& output() const { return result; }
  const Value& output_value() const { return graph.values[node.output]; }
};

// A property of a node as files name it: [height, width], a whole or a real number; the other two
// are null.
struct NodeField {
  const char* name;
  std::array<std::int64_t, 2>* (*pair)(Node&);
  std::int64_t* (*number)(Node&) = nullptr;
  double* (*real)(Node&) = nullptr;

  const std::array<std::int64_t, 2>& pair_of(const Node& node) const {
    return *pair(const_cast<Node&>(node));
  }
  std::int64_t number_of(const Node& node) const { return *number(const_cast<Node&>(node)); }
  double real_of(const Node& node) const { return *real(const_cast<Node&>(node)); }
};

struct OpInfo {
  Op op;
  const char* name;                        // in files and messages
  std::vector<std::string_view> recorded;  // operations of the tape that have this form

  std::size_t inputs = 1;         // 0: any number, of at least one
  bool has_weights = false;       // a linear map
  bool fuses_activation = false;  // Node::activation may be another than kNone
  bool keeps_codes = false;       // its codes are codes of its input, whose quantization it has
  bool rounds_floats = false;     // of floats, the order of its sums or its function may round
  std::vector<NodeField> fields{};

  // Why a recorded operation has no deployed form after all; "" where it has.
  std::string (*refusal)(const Function&) = nullptr;
  // Fills the node's fields and activation.
  void (*read)(const Function&, Node&) = nullptr;

  // The output's shape for one sample. Throws std::invalid_argument by expect() (ops/support.h).
  Shape (*shape)(const Graph&, const Node&);
  // What quantization, weights and fields must fulfil beyond validate()'s own rules.
  void (*check)(const Graph&, const Node&) = nullptr;

  // Fills an output that has elements, as plain loops; of the code that trains it uses
  // kernels/affine.h only. It judges everything else.
  void (*reference)(const Operands&);
  // The same with the exact integer kernels; false where there is none for the node.
  bool (*fast)(const Operands&) = nullptr;

  // Writes the operation on f32 tensors, quantizers around it left out. Null for kQuantize.
  void (*onnx)(OnnxNodes&, const Node&, const std::string& output) = nullptr;
  // What a line about the node says behind the name: " 3x3, stride 1x1".
  std::string (*text)(const Node&) = nullptr;
};

const std::vector<OpInfo>& op_table();

const OpInfo& op_info(Op op);
// Null for an unknown name.
const OpInfo* find_op(std::string_view name);
const OpInfo* find_recorded(std::string_view operation);

}  // namespace steelyard::deploy
