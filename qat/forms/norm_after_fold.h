// Batch norm in training, after a product whose weights were folded with running statistics.
//
// Both are gamma * (raw - mean) / sqrt(var + eps) + beta with the batch's statistics, where raw is
// the product with the weights as they were before folding; they differ in where raw comes from.
#pragma once

#include "steelyard/framework/ops/reductions/batch_norm.h"

namespace steelyard::qat {

// `product` was made with weights folded by gamma / sigma_r, `raw` with those before. Per channel
//   y = product * sigma_r / sigma + (beta - gamma * mean / sigma),
// mean and sigma of the batch in `raw`, sigma_r the running one before this batch moved it, a
// constant. Gradients reach all four variables. Source: Krishnamoorthi, arXiv:1806.08342, 3.2.2.
// `offset` [C], undefined for none, is added to the mean that the running one follows.
Variable corrected_batch_norm(const Variable& product, const Variable& raw, const Variable& gamma,
                              const Variable& beta, const Tensor& offset,
                              const BatchNormState& state);

// raw = product / factor (f64 [C]) per channel, no factor 0: the batch norm of what the folding
// hid. Source: Jacob et al., arXiv:1712.05877, 3.2, in the approximate form with one convolution.
Variable recovered_batch_norm(const Variable& product, const Tensor& factor, const Variable& gamma,
                              const Variable& beta, const Tensor& offset,
                              const BatchNormState& state);

}  // namespace steelyard::qat
