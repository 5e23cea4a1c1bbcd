// Sigmoid, tanh, hardswish and leaky ReLU of codes in fixed point, in files and programs.
#pragma once

#include <cstdint>

#include "steelyard/export/c/c_nodes.h"
#include "steelyard/export/op_form.h"
#include "steelyard/runtime/ops/fixed_activations.h"

namespace steelyard::deploy {

// The row of an operation with what it has in fixed point.
OpForm with_fixed_activation(OpForm form);

// A call of a table on `count` codes of each of `rows` rows, which are `step` apart, from `first`
// on.
struct CMapped {
  std::int64_t rows, count, step, first;
};
void add_c_map(CNodes& nodes, const Node& node, std::size_t input, const CodeTable& table,
               const CMapped& at);

}  // namespace steelyard::deploy
