// Long short-term memory over a sequence of codes in fixed point.
#include <algorithm>
#include <array>

#include "steelyard/export/c/c_kernels.h"
#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/c/c_product.h"
#include "steelyard/export/ops/rows.h"
#include "steelyard/export/tflite/tflite_nodes.h"
#include "steelyard/kernels/fixed_functions.h"
#include "steelyard/qat/forms/integer_product.h"
#include "steelyard/qat/layers/recurrent/qat_fixed_lstm.h"
#include "steelyard/runtime/ops/recurrent.h"

namespace steelyard::deploy {
namespace {

Weights weights_of(const qat::WeightCodes& codes) {
  return {.product = ProductKind::kInteger,
          .weight = codes.codes.to(Device{}),
          .bits = codes.bits,
          .scales = qat::deployed_scales(codes.qparams.scale, codes.codes.dim(0)),
          .zero_points = {},
          .bias = codes.bias.defined() ? codes.bias.to(Device{}) : Tensor()};
}

void read(const Function& function, Node& node) {
  const auto& lstm = dynamic_cast<const qat::FixedLstmFunction&>(function);
  node.weights = weights_of(lstm.weight());
  node.recurrent = weights_of(lstm.recurrent());
}

// Of each gate in TFLite's order, input, forget, cell and output, its place in the graph's.
constexpr std::array<std::int64_t, 4> kTfliteGates{0, 2, 3, 1};

void tflite(TfliteNodes& nodes, const Node& node) {
  constexpr std::int32_t kTanh = 4;  // of the schema, as the function of the cell's gate
  const std::int64_t units = node.recurrent->weight.dim(1);
  const auto size = static_cast<std::int32_t>(units);
  std::vector<std::int32_t> inputs{nodes.input(node)};
  const auto add_weights = [&](const Weights& weights, const std::string& name) {
    for (const std::int64_t gate : kTfliteGates) {
      const auto count = static_cast<std::size_t>(weights.weight.size() / 4);
      const auto codes =
          weights.weight.span<std::int8_t>().subspan(static_cast<std::size_t>(gate) * count, count);
      inputs.push_back(nodes.codes(node.name + name + std::to_string(gate), codes,
                                   {size, static_cast<std::int32_t>(weights.weight.dim(1))},
                                   {{weights.scales.front()}, {0}, 0}));
    }
  };
  const auto leave_out = [&](std::size_t count) {
    inputs.insert(inputs.end(), count, kNoTfliteTensor);
  };
  add_weights(*node.weights, "/weight");
  add_weights(*node.recurrent, "/recurrent_weight");
  leave_out(3);  // weights of the cell
  const float scale = nodes.input_quantization(node).scale * node.weights->scales.front();
  for (const std::int64_t gate : kTfliteGates) {
    const auto bias = node.weights->bias.span<std::int32_t>().subspan(
        static_cast<std::size_t>(gate * units), static_cast<std::size_t>(units));
    inputs.push_back(nodes.int32s(node.name + "/bias" + std::to_string(gate), bias, {size},
                                  TfliteQuantization{{scale}, {0}, 0}));
  }
  leave_out(2);  // a projection
  const TfliteQuantization output = tflite_quantization(nodes.output_quantization(node));
  inputs.push_back(
      nodes.variable(node.name + "/output_state", {1, size}, output, TfliteType::kInt8));
  inputs.push_back(nodes.variable(node.name + "/cell_state", {1, size},
                                  {{kernels::kCellScale}, {0}, 0}, TfliteType::kInt16));
  leave_out(4);  // norms
  nodes.add(TfliteOp::kUnidirectionalSequenceLstm, 1, inputs, nodes.output(node),
            {.table = 71, .fields = {{0, 1, kTanh}}});
  // LiteRT wants five, of norms and of a projection, where they are left out, too; TFLite Micro has
  // none with elements.
  const std::int32_t hidden =
      nodes.computed(node.name + "/hidden", {0}, nodes.output_quantization(node));
  nodes.model().operators.back().intermediates.assign(5, hidden);
}

void c(CNodes& nodes, const Node& node) {
  const Weights &weights = *node.weights, &recurrent = *node.recurrent;
  const Quantization &in = nodes.input_quantization(node), &out = nodes.output_quantization(node);
  const std::int64_t inputs = weights.weight.dim(1), units = recurrent.weight.dim(1);
  const kernels::FixedLstm rule =
      kernels::make_fixed_lstm(in.scale, weights.scales.front(), recurrent.scales.front(),
                               out.scale, out.zero_point, out.rounding);
  CFields fields;
  const auto add_product = [&](const Node& product, const std::string& weight,
                               const std::string& bias) {
    const auto codes = product.weights->weight.span<std::int8_t>();
    fields.set(weight.c_str(), c_weights(nodes, codes, weights.bits, /*of_two_places=*/false));
    fields.set(bias.c_str(), nodes.array(c_biases(nodes, product, codes)));
  };
  add_product(node, "weight", "bias");
  add_product(recurrence_of(node), "recurrent", "recurrent_bias");
  std::vector<std::uint16_t> entries;
  for (std::int32_t i = 0; i < 256; ++i) {
    entries.push_back(static_cast<std::uint16_t>(kernels::fixed_logistic_entry(i)));
  }
  fields.set("entries", nodes.table(entries));
  fields.set("steps", nodes.graph().values[node.output].shape[0]);
  fields.set("inputs", inputs).set("units", units);
  const auto add_factor = [&](const std::string& name, const kernels::FixedMultiplier& by) {
    fields.set((name + "_multiplier").c_str(), by.multiplier);
    fields.set((name + "_shift").c_str(), std::min(by.shift, 31));
  };
  add_factor("input", rule.of_input);
  add_factor("state", rule.of_state);
  add_factor("kept", rule.kept);
  add_factor("added", rule.added);
  add_factor("output", rule.output);
  fields.set("out_zero", out.zero_point);
  set_c_range(fields, out, kernels::Activation::kNone);
  nodes.call(c_kernel_for("lstm", weights.bits), "lstm_node", node, fields);
  nodes.use_scratch(node, 2 * units + std::max(c_unpacked_bytes(inputs, weights.bits),
                                               c_unpacked_bytes(units, weights.bits)));
}

}  // namespace

OpForm fixed_lstm_form() {
  return {
      .op = Op::kFixedLstm, .recorded = {"quantized_lstm"}, .read = read, .tflite = tflite, .c = c};
}

}  // namespace steelyard::deploy
