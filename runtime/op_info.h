// The table of deployed operations: a row contains what runs one, and what its files look like.
//
// Validation, both engines and files go through it. op_list.h lists the operations; NAME_op() in
// runtime/ops/ makes the row of one, in a file of its own or of its family. What records and
// exports them is in a row of its own (export/op_form.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

struct PreparedNode;

// A node with the tensors of a batch: inputs are among `values`, the result is to be filled.
// `prepared`: prepared_node() of the node, or null.
struct Operands {
  const Graph& graph;
  const Node& node;
  const std::vector<Tensor>& values;
  const Tensor& result;
  const PreparedNode* prepared = nullptr;

  const Tensor& input(std::size_t i) const { return values[node.inputs[i]]; }
  const Value& input_value(std::size_t i) const { return graph.values[node.inputs[i]]; }
  const Tensor& output() const { return result; }
  const Value& output_value() const { return graph.values[node.output]; }
};

inline constexpr int kNewestGraphVersion = 17;  // of graph files (graph_keys.h lists them)

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
  const char* name;  // in files and messages

  std::size_t inputs = 1;          // 0: any number, of at least one
  std::size_t optional = 0;        // of them, the last ones
  bool takes_constants = false;    // all inputs but one may be constants
  bool has_weights = false;        // a linear map
  bool may_have_weights = false;   // in the place of its constant
  bool has_recurrent = false;      // and one of its own output
  bool fuses_activation = false;   // Node::activation may be another than kNone
  bool keeps_codes = false;        // its codes, if it has any, are codes of its input, whose
                                   // quantization it has
  bool fixed_point = false;        // its codes may be computed in fixed point
  bool rounds_floats = false;      // of floats, the order of its sums or its function may round
  NodeOptions options{};           // as in a new node
  GraphVersion graph_version = 1;  // of files that know it
  // graph_version of a form of it that came later; 0 for other nodes.
  int (*later_version)(const Graph&, const Node&) = nullptr;

  // The output's shape for one sample. Throws std::invalid_argument by expect() (ops/support.h).
  Shape (*shape)(const Graph&, const Node&);
  // Checks of quantization, weights and options beyond validate()'s own rules.
  void (*check)(const Graph&, const Node&) = nullptr;

  // Computes a non-empty output with plain loops, with which everything else is compared. Of the
  // training code's arithmetic it uses kernels/affine.h, kernels/fixed_point.h, the formulas of
  // kernels/requantize/formulas.h and hard_sigmoid() (kernels/activation) only.
  void (*reference)(const Operands&);
  // Computes the output with the exact integer kernels; false where there is none for the node.
  bool (*fast)(const Operands&) = nullptr;
};

const std::vector<OpInfo>& op_table();

const OpInfo& op_info(Op op);
// The version of graph files that know a node: its operation, its form of it, its constants.
int version_of_node(const Graph& graph, const Node& node);
// Null for an unknown name.
const OpInfo* find_op(std::string_view name);

}  // namespace steelyard::deploy
