// Random omission of activations.
// Source: Srivastava et al., "Dropout", JMLR 2014.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/rng.h"

namespace steelyard {

// Sets each element to zero with probability p in [0, 1) and divides the others by 1 - p. Which
// elements fall depends only on the state of `rng` (not on threads or the device); p = 0 returns x
// and draws nothing. Keeps one bit per element for backward.
Variable dropout(const Variable& x, double p, Rng& rng);

// The parts dropout() is made of, for values that are not on the tape as floats. The packed mask
// (bit i % 8 of byte i / 8: element i stays) of n elements, and the values or gradients under it.
// The first throws std::invalid_argument unless p is in [0, 1).
Tensor dropout_mask(std::int64_t n, double p, Rng& rng, Device device = {});
Tensor apply_dropout(const Tensor& x, const Tensor& mask, double p);

}  // namespace steelyard
