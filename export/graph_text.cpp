#include "steelyard/export/graph_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "steelyard/export/op_form.h"
#include "steelyard/framework/tensor/activation_words.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/runtime/graph.h"

namespace steelyard::deploy {
namespace {

std::string value_text(const Value& value) {
  std::string text = shape_string(value.shape);
  if (!value.quantization) return "f32 " + text;
  const Quantization& q = *value.quantization;
  return fmt::format("{} {} codes {}..{}, scale {}, zero point {}", dtype_name(q.dtype), text,
                     q.range.qmin, q.range.qmax, q.scale, q.zero_point);
}

std::string operation_text(const Node& node) {
  const OpForm& form = op_form(node.op);
  std::string text = op_name(node.op);
  if (form.text != nullptr) text += form.text(node);
  const bool fused = node.activation != kernels::Activation::kNone;
  return fused ? text + " + " + word_of(node.activation) : text;
}

std::string weights_text(const Weights& weights) {
  std::string text = fmt::format(
      "weight {} {}", weights.has_codes() ? fmt::format("int{}", weights.bits) : std::string("f32"),
      shape_string(weights.weight.shape()));
  if (weights.has_codes()) {
    const auto [lo, hi] = std::minmax_element(weights.scales.begin(), weights.scales.end());
    if (!weights.scales.empty()) text += fmt::format(", scales {}..{}", *lo, *hi);
    if (!weights.zero_points.empty()) {
      const auto [first, last] =
          std::minmax_element(weights.zero_points.begin(), weights.zero_points.end());
      text += fmt::format(", zero points {}..{}", int{*first}, int{*last});
    }
    if (!weights.one_scale_per_channel()) {
      text += fmt::format(" of {} each, {}", weights.group_size(),
                          weights.integer() ? "a scale for each sum" : "product in float");
    }
  }
  return text + (weights.bias.defined() ? ", bias" : "");
}

}  // namespace

std::string to_string(const Graph& graph) {
  std::size_t width = 5;
  for (const Node& node : graph.nodes) width = std::max(width, printable(node.name).size());
  std::string text =
      fmt::format("{:<{}}  {}\n", "input", width, value_text(graph.values[graph.input]));
  for (const Node& node : graph.nodes) {
    std::string from;
    for (const std::size_t input : node.inputs) {
      from += (from.empty() ? "" : " + ") + printable(graph.values[input].name);
    }
    for (const Constant& constant : node.constants) {
      from += " + constant " + shape_string(constant.value.shape());
    }
    text +=
        fmt::format("{:<{}}  {} of {}\n{:<{}}    -> {}\n", printable(node.name), width,
                    operation_text(node), from, "", width, value_text(graph.values[node.output]));
    if (node.weights) text += fmt::format("{:<{}}    {}\n", "", width, weights_text(*node.weights));
  }
  return text + fmt::format("{} bytes of parameters\n", parameter_bytes(graph));
}

}  // namespace steelyard::deploy
