// How the outputs of a network change where a tensor is quantized, as numbers.
#pragma once

#include "steelyard/recipes/searches/sensitivity.h"

namespace steelyard {

// The mean over rows [N, ...] of the Kullback-Leibler divergence of class scores, or of the squared
// difference of values. Infinite where one output of `to` is not finite.
double divergence(const Tensor& from, const Tensor& to, bool classes);

// What ranks tell one another of an effect; NaN where there is nothing.
struct EffectNumbers {
  double sqnr_db, clipped, loss_increase, top1_drop, divergence;
};

EffectNumbers numbers_of(const QuantizationEffect& effect);
QuantizationEffect effect_of(int bits, const EffectNumbers& numbers);

}  // namespace steelyard
