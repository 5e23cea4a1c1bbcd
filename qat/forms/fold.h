// Folding a batch norm with fixed statistics into the layer before it.
#pragma once

#include "steelyard/framework/ops/reductions/batch_norm.h"
#include "steelyard/layers/norms/batch_norm.h"

namespace steelyard::qat {

struct FoldedWeights {
  Tensor weight;  // [O, ...]
  Tensor bias;    // [O]
};

// weight' = weight * gamma / sqrt(var + eps), bias' = beta + (bias - mean) * gamma / sqrt(var +
// eps) from the running statistics, computed in double; `bias` may be undefined. gamma = 0
// gives a zero channel with bias beta. Source: Jacob et al. 2018, section 3.2. Throws
// std::invalid_argument when the channels differ.
FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm& norm);

// The weight' and bias' of fold_batch_norm(), recorded on the tape, f32 or f64: gradients reach
// weight [O, ...], gamma, beta and bias [O] (may be undefined); the running statistics in `state`
// are constants.
Variable fold_weight(const Variable& weight, const Variable& gamma, const BatchNormState& state);
Variable fold_bias(const Variable& bias, const Variable& gamma, const Variable& beta,
                   const BatchNormState& state);

// sqrt(var + eps) of the running variance, f64 [C].
Tensor running_std(const BatchNormState& state);

}  // namespace steelyard::qat
