// The words of fused activations, in recipes and files.
#pragma once

#include <span>

#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/affine.h"

namespace steelyard::kernels {

inline constexpr Word<Activation> kActivationWords[] = {
    {Activation::kNone, "none"}, {Activation::kRelu, "relu"}, {Activation::kRelu6, "relu6"}};
static_assert(is_complete<Activation>(kActivationWords, Activation::kRelu6));
constexpr std::span<const Word<Activation>> words_of(Activation) { return kActivationWords; }

}  // namespace steelyard::kernels
