// Gated recurrent unit: a recurrent network over a sequence.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/ops/op_options.h"  // IWYU pragma: export

namespace steelyard {

// The parameters, whose gates are in the order update, reset, new: weight [3 H, I], recurrent
// [3 H, H], bias [3 H], the recurrent bias of the new state [H], and the output before the first
// step [H].
struct GruParameters {
  Variable weight, recurrent, bias, recurrent_bias, output;
};

// For x [N, L, I] the outputs [N, L, H]. z, r = sigmoid(W x + R h + b), n = tanh(W x + b + r *
// (R h + recurrent bias)), h = (1 - z) * n + z * h, where h on the right is that of the step
// before. Throws std::invalid_argument on shapes that do not fit.
Variable gru(const Variable& x, const GruParameters& parameters, const GruOptions& options = {});

}  // namespace steelyard
