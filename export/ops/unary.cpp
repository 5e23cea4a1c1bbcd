// Functions of each element, of floats.
#include "steelyard/export/onnx/onnx_nodes.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/framework/tensor/describes.h"

namespace steelyard::deploy {
namespace {

using OnnxOf = void (*)(OnnxNodes&, const Node&, const std::string&);

// The operation of the same name, which ONNX begins with a capital letter.
void own_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  std::string operation = op_name(node.op);
  operation[0] = static_cast<char>(operation[0] - 'a' + 'A');
  nodes.onnx().add(operation, {nodes.input(node)}, output);
}

void elu_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  nodes.onnx().add("Elu", {nodes.input(node)}, output,
                   {{"alpha", static_cast<float>(node.as<EluOptions>().alpha)}});
}

void pow_onnx(OnnxNodes& nodes, const Node& node, const std::string& output) {
  const auto exponent = static_cast<float>(node.as<Exponent>().exponent);
  nodes.onnx().add(
      "Pow", {nodes.input(node), nodes.onnx().floats(node.name + "/exponent", {&exponent, 1}, {})},
      output);
}

// `name` is the tape's.
OpForm form(Op op, const char* name) { return {.op = op, .recorded = {name}, .onnx = own_onnx}; }

// Of a function of x and a number, the only one of its options.
template <typename Options, double Options::*number>
OpForm form_of_number(Op op, const char* name, OnnxOf onnx) {
  return {.op = op,
          .recorded = {name},
          .read = [](const Function& function,
                     Node& node) { node.as<Options>().*number = described<double>(function); },
          .onnx = onnx};
}

}  // namespace

OpForm sqrt_form() { return form(Op::kSqrt, "sqrt"); }
OpForm exp_form() { return form(Op::kExp, "exp"); }
OpForm log_form() { return form(Op::kLog, "log"); }
OpForm abs_form() { return form(Op::kAbs, "abs"); }
OpForm erf_form() { return form(Op::kErf, "erf"); }
OpForm sin_form() { return form(Op::kSin, "sin"); }
OpForm cos_form() { return form(Op::kCos, "cos"); }
OpForm softplus_form() { return form(Op::kSoftplus, "softplus"); }
OpForm sign_form() { return form(Op::kSign, "sign"); }
OpForm floor_form() { return form(Op::kFloor, "floor"); }
OpForm ceil_form() { return form(Op::kCeil, "ceil"); }
OpForm round_form() { return form(Op::kRound, "round"); }

OpForm elu_form() {
  return form_of_number<EluOptions, &EluOptions::alpha>(Op::kElu, "elu", elu_onnx);
}
OpForm pow_form() {
  return form_of_number<Exponent, &Exponent::exponent>(Op::kPow, "pow", pow_onnx);
}

}  // namespace steelyard::deploy
