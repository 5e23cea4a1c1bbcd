// What joining values takes, wherever it is done.
#pragma once

#include "steelyard/runtime/ops/fixed_activations.h"
#include "steelyard/runtime/ops/support.h"

namespace steelyard::deploy {

// The joined dimension of its inputs.
std::size_t axis_of(const Graph& graph, const Node& node);
// Elements from the joined dimension on, of one sample.
std::int64_t row_size(const Shape& shape, std::size_t axis);
// The output's code of every byte that can be a code of the input.
CodeTable code_table(const Quantization& in, const Quantization& out);

}  // namespace steelyard::deploy
