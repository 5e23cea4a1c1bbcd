// Random omission of activations.
// Source: Srivastava et al., "Dropout", JMLR 2014.
#pragma once

#include <span>
#include <tuple>

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/fields.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {

// What falls together: an element; all positions of a sample's channel (Tompson et al.,
// arXiv:1411.4280); a whole sample (Huang et al., "Deep Networks with Stochastic Depth",
// arXiv:1603.09382). Samples are the first dimension, channels the last.
enum class DropoutUnit { kElement, kChannel, kSample };

inline constexpr Word<DropoutUnit> kDropoutUnitWords[] = {
    {DropoutUnit::kElement, "element", "each value by itself"},
    {DropoutUnit::kChannel, "channel", "all positions of a channel of a sample"},
    {DropoutUnit::kSample, "sample", "all values of a sample (stochastic depth)"},
};
constexpr std::span<const Word<DropoutUnit>> words_of(DropoutUnit) { return kDropoutUnitWords; }
static_assert(is_complete(words_of(DropoutUnit{}), DropoutUnit::kSample));

struct DropoutOptions {
  double p = 0.5;  // in [0, 1)
  DropoutUnit unit = DropoutUnit::kElement;
  static constexpr auto fields() {
    return std::tuple(field("p", &DropoutOptions::p),
                      field("unit", &DropoutOptions::unit, /*optional=*/true));
  }
};

// Sets each unit to zero with probability p in [0, 1) and divides the others by 1 - p. Which
// units fall depends only on the state of `rng` (not on threads or the device); p = 0 returns x
// and draws nothing. Keeps one bit per element for backward. Throws std::invalid_argument for other
// p, and for whole channels of fewer than two dimensions.
Variable dropout(const Variable& x, const DropoutOptions& options, Rng& rng);
inline Variable dropout(const Variable& x, double p, Rng& rng) {
  return dropout(x, DropoutOptions{p}, rng);
}

// The parts dropout() is made of, for values that are not on the tape as floats. The packed mask
// (bit i % 8 of byte i / 8: element i stays) of a shape, and the values or gradients under it.
Tensor dropout_mask(const Shape& shape, const DropoutOptions& options, Rng& rng,
                    Device device = {});
Tensor apply_dropout(const Tensor& x, const Tensor& mask, double p);

}  // namespace steelyard
