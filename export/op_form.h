// The table of what records and exports deployed operations, beside that of what runs them
// (runtime/op_info.h): NAME_form() in export/ops/ makes the row of one, in a file of its own or of
// its family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {

class CNodes;
class OnnxNodes;
class TfliteNodes;

// How an ONNX file holds values of three dimensions.
enum class OnnxOrder {
  kOfInput,        // what is read and made: as the first such input is held
  kChannelsFirst,  // images, [N, C, H, W]
  kAsHere          // the graph's own order
};

struct OpForm {
  Op op;
  std::vector<std::string_view> recorded;  // operations of the tape that have this form
  bool in_c_header = false;                // the C header has a form of it

  // Why a recorded operation has no deployed form after all; "" where it has.
  std::string (*refusal)(const Function&) = nullptr;
  // has_weights: f32 weights in the graph's layout, where a recorded parameter has another.
  Tensor (*weight)(const Node&, const Tensor& parameter) = nullptr;
  // Fills the node's options and activation, and weights that are not those of a recorded product.
  void (*read)(const Function&, Node&) = nullptr;

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

const std::vector<OpForm>& form_table();

const OpForm& op_form(Op op);
// Null for an operation of the tape that has none.
const OpForm* find_recorded(std::string_view operation);

}  // namespace steelyard::deploy
