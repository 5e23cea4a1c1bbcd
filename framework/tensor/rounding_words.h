// The words of roundings, in recipes and files.
#pragma once

#include <span>

#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/fixed_point.h"

namespace steelyard::kernels {

inline constexpr Word<Rounding> kRoundingWords[] = {
    {Rounding::kFloat, "float"},
    {Rounding::kFixedTwice, "fixed_point_twice"},
    {Rounding::kFixedOnce, "fixed_point_once"},
};
static_assert(is_complete<Rounding>(kRoundingWords, Rounding::kFixedOnce));
constexpr std::span<const Word<Rounding>> words_of(Rounding) { return kRoundingWords; }

}  // namespace steelyard::kernels
