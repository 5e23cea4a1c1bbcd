// Folding a batch norm with fixed statistics into the layer before it.
#pragma once

#include "framework/tensor.h"
#include "layers/batch_norm2d.h"

namespace steelyard::qat {

struct FoldedWeights {
  Tensor weight;  // [O, ...]
  Tensor bias;    // [O]
};

// weight' = weight * gamma / sqrt(var + eps), bias' = beta + (bias - mean) * gamma / sqrt(var +
// eps) from the running statistics, computed in double; `bias` may be undefined. f32. gamma = 0
// gives a zero channel with bias beta. Source: Jacob et al. 2018, section 3.2. Throws
// std::invalid_argument when the channels differ.
FoldedWeights fold_batch_norm(const Tensor& weight, const Tensor& bias, const BatchNorm2d& norm);

}  // namespace steelyard::qat
