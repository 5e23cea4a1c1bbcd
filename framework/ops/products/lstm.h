// Long short-term memory: a recurrent network over a sequence.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export

namespace steelyard {

// The parameters, whose gates are in the order input, output, forget, cell: weight [4 H, I],
// recurrent [4 H, H], bias [4 H], and the output and cell before the first step, [H] each.
struct LstmParameters {
  Variable weight, recurrent, bias, output, cell;
};

// For x [N, L, I] the outputs [N, L, H], or [N, L + 1, H] with the final cell. i, o, f =
// sigmoid(W x + R h + b), g = tanh(W x + R h + b), c = f * c + i * g, h = o * tanh(c), where h and
// c on the right are those of the step before. Throws std::invalid_argument on shapes that do not
// fit.
Variable lstm(const Variable& x, const LstmParameters& parameters, const LstmOptions& options = {});

}  // namespace steelyard
