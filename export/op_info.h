// The table of deployed operations: a row contains everything that the library knows about one.
//
// Reading a trace, validation, both engines, the ONNX writer, files and texts go through it.
// op_list.h lists the operations; NAME_op() in export/ops/ makes the row of one, in a file of its
// own or of its family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "steelyard/export/graph.h"
#include "steelyard/framework/autograd/autograd.h"

namespace steelyard::qat {
struct WeightCodes;
}

namespace steelyard::deploy {

class CNodes;
class OnnxNodes;
class TfliteNodes;

// A node with the tensors of a batch: inputs are among `values`, the result is to be filled.
// `prepared`: prepared_weights() of the node, or null.
struct Operands {
  const Graph& graph;
  const Node& node;
  const std::vector<Tensor>& values;
  const Tensor& result;
  const qat::WeightCodes* prepared = nullptr;

  const Tensor& input(std::size_t i) const { return values[node.inputs[i]]; }
  const Value& input_value(std::size_t i) const { return graph.values[node.inputs[i]]; }
  const Tensor& output() const { return result; }
  const Value& output_value() const { return graph.values[node.output]; }
};

// How an ONNX file holds values of three dimensions.
enum class OnnxOrder {
  kOfInput,        // what is read and made: as the first such input is held
  kChannelsFirst,  // images, [N, C, H, W]
  kAsHere          // the graph's own order
};

inline constexpr int kNewestGraphVersion = 14;  // of graph files (graph_file.cpp lists them)

// A row with another version than these does not compile.
struct GraphVersion {
  int number;
  // NOLINTNEXTLINE(google-explicit-constructor): rows say the number
  consteval GraphVersion(int n) : number(n) {
    if (n < 1 || n > kNewestGraphVersion) throw "no version of graph files";
  }
};

struct OpInfo {
  Op op;
  const char* name;                        // in files and messages
  std::vector<std::string_view> recorded;  // operations of the tape that have this form

  std::size_t inputs = 1;          // 0: any number, of at least one
  std::size_t optional = 0;        // of them, the last ones
  bool takes_constants = false;    // all inputs but one may be constants
  bool has_weights = false;        // a linear map
  bool fuses_activation = false;   // Node::activation may be another than kNone
  bool keeps_codes = false;        // its codes, if it has any, are codes of its input, whose
                                   // quantization it has
  bool fixed_point = false;        // its codes may be computed in fixed point
  bool rounds_floats = false;      // of floats, the order of its sums or its function may round
  NodeOptions options{};           // as in a new node
  GraphVersion graph_version = 1;  // of files that know it
  // graph_version of a form of it that came later; 0 for other nodes.
  int (*later_version)(const Graph&, const Node&) = nullptr;
  bool in_c_header = false;  // the C header has a form of it

  // Why a recorded operation has no deployed form after all; "" where it has.
  std::string (*refusal)(const Function&) = nullptr;
  // has_weights: f32 weights in the graph's layout, where a recorded parameter has another.
  Tensor (*weight)(const Node&, const Tensor& parameter) = nullptr;
  // Fills the node's options and activation.
  void (*read)(const Function&, Node&) = nullptr;

  // The output's shape for one sample. Throws std::invalid_argument by expect() (ops/support.h).
  Shape (*shape)(const Graph&, const Node&);
  // Checks of quantization, weights and options beyond validate()'s own rules.
  void (*check)(const Graph&, const Node&) = nullptr;

  // Computes a non-empty output with plain loops, with which everything else is compared. Of the
  // training code's arithmetic it uses kernels/affine.h, kernels/fixed_point.h and hard_sigmoid()
  // (kernels/activation) only.
  void (*reference)(const Operands&);
  // Computes the output with the exact integer kernels; false where there is none for the node.
  bool (*fast)(const Operands&) = nullptr;

  // Writes the operation on f32 tensors, quantizers around it left out. Null for kQuantize.
  void (*onnx)(OnnxNodes&, const Node&, const std::string& output) = nullptr;
  OnnxOrder onnx_order = OnnxOrder::kOfInput;
  int opset = 13;  // that has what it writes
  // Writes the operation on codes in fixed point into a TFLite file. Null where that has no form.
  void (*tflite)(TfliteNodes&, const Node&) = nullptr;
  // The same in a C program.
  void (*c)(CNodes&, const Node&) = nullptr;
  // The text after the name in a printed line about the node: " 3x3, stride 1x1".
  std::string (*text)(const Node&) = nullptr;
};

const std::vector<OpInfo>& op_table();

const OpInfo& op_info(Op op);
// Null for an unknown name.
const OpInfo* find_op(std::string_view name);
const OpInfo* find_recorded(std::string_view operation);

}  // namespace steelyard::deploy
