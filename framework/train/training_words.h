// The names of the engine's enumeration values in recipes, messages and checkpoints.
#pragma once

#include "steelyard/framework/tensor/words.h"
#include "steelyard/framework/train/loss.h"
#include "steelyard/framework/train/lr_schedule.h"

namespace steelyard {

inline constexpr Word<Loss::Type> kLossWords[] = {
    {Loss::Type::kCrossEntropy, "cross_entropy"},
    {Loss::Type::kMeanSquaredError, "mse"},
    {Loss::Type::kHuber, "huber"},
    {Loss::Type::kBinaryCrossEntropy, "binary_cross_entropy"},
    {Loss::Type::kCosine, "cosine"},
    {Loss::Type::kCtc, "ctc"},
    {Loss::Type::kFidelity, "fidelity"},
    {Loss::Type::kTokenCrossEntropy, "token_cross_entropy"},
};
static_assert(is_complete<Loss::Type>(kLossWords, Loss::Type::kTokenCrossEntropy));
constexpr std::span<const Word<Loss::Type>> words_of(Loss::Type) { return kLossWords; }

inline constexpr Word<LrSchedule::Type> kLrScheduleWords[] = {
    {LrSchedule::Type::kConstant, "constant"},
    {LrSchedule::Type::kStep, "step"},
    {LrSchedule::Type::kCosine, "cosine", "half a cosine to the end of training"},
};
static_assert(is_complete<LrSchedule::Type>(kLrScheduleWords, LrSchedule::Type::kCosine));
constexpr std::span<const Word<LrSchedule::Type>> words_of(LrSchedule::Type) {
  return kLrScheduleWords;
}

}  // namespace steelyard
