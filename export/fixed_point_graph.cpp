#include "steelyard/export/fixed_point_graph.h"

#include <algorithm>

#include "steelyard/export/output_map.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/qat/quantizers/words.h"

namespace steelyard::deploy {
namespace {

// Why a node's output has no codes, and what gives it some.
std::string reason_of_floats(const Graph& graph, const Node& node) {
  if (output_map(graph)) {
    return ": the outputs become the numbers of the data by a float product and sum, which "
           "data.normalize_targets: false leaves out";
  }
  const bool ends = node.output == graph.output;
  if (ends && (node.op == Op::kSoftmax || node.op == Op::kLogSoftmax || node.op == Op::kSigmoid)) {
    return std::string(": ") + op_name(node.op) +
           " ends the imported model and is no part of what is trained: expected a file without "
           "it; codes in its place have the same order";
  }
  return "";
}

}  // namespace

std::string_view fixed_point_profile(const Graph& graph) {
  const kernels::Rounding rounding = graph.values[graph.output].quantization->rounding;
  const auto words = qat::words_of(qat::Profile{});
  return std::find_if(words.begin(), words.end(),
                      [&](const Word<qat::Profile>& word) {
                        return qat::rounding_of(word.value) == rounding;
                      })
      ->word;
}

bool makes_input_codes(const Graph& graph, const Node& node) {
  return node.op == Op::kQuantize && node.inputs[0] == graph.input;
}

std::size_t input_codes(const Graph& graph) {
  return std::find_if(graph.nodes.begin(), graph.nodes.end(),
                      [&](const Node& node) { return makes_input_codes(graph, node); })
      ->output;
}

std::string fixed_point_refusal(const Graph& graph, const std::string& format,
                                bool (*has_form)(const OpForm&)) {
  if (!graph.input_ports.empty() || !graph.output_ports.empty()) {
    return format + " has one input and one output here, the model has several";
  }
  const auto input_readers =
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
        return std::count(node.inputs.begin(), node.inputs.end(), graph.input) > 0;
      });
  for (const Node& node : graph.nodes) {
    const auto& q = graph.values[node.output].quantization;
    if (q && !q->fixed_point()) {
      return "its codes are rounded as floats: " + format +
             " needs a model trained with export.profile tflm";
    }
    const std::string layer = "layer '" + printable(node.name) + "': ";
    if (!q) return layer + format + " has no floats" + reason_of_floats(graph, node);
    if (makes_input_codes(graph, node) && input_readers == 1) continue;
    if (!has_form(op_form(node.op))) {
      return layer + format + " has no form of " + op_name(node.op);
    }
  }
  return graph.nodes.empty() || input_readers != 1 ? "the model's input is expected to be quantized"
                                                   : "";
}

}  // namespace steelyard::deploy
