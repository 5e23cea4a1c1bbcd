// Sigmoid, tanh, hardswish and leaky ReLU of codes in fixed point: tables with an entry for each of
// the 256 input codes.
#pragma once

#include <array>
#include <cstdint>

#include "steelyard/runtime/op_info.h"

namespace steelyard::deploy {

// By the byte of the input's code.
using CodeTable = std::array<std::int8_t, 256>;

// The table of f: the unclamped code for a code of the input less its zero point.
template <typename F>
CodeTable code_table_of(const Quantization& in, const Quantization& out, const F& f) {
  CodeTable table{};
  for (int byte = 0; byte < 256; ++byte) {
    const std::int32_t code = f(static_cast<std::int8_t>(byte) - in.zero_point);
    const std::int32_t raised = code < out.range.qmin ? out.range.qmin : code;
    table[static_cast<std::size_t>(byte)] =
        static_cast<std::int8_t>(raised > out.range.qmax ? out.range.qmax : raised);
  }
  return table;
}

// Of the node, which has codes in fixed point.
CodeTable activation_table(const Graph& graph, const Node& node);

// Throws std::invalid_argument, naming the node, for quantizations and slopes that it has no form
// of.
void check_fixed_activation(const Graph& graph, const Node& node);
void fixed_activate(const Operands& op);

}  // namespace steelyard::deploy
