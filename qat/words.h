// How recipes and messages spell the enumerations of quantization.
#pragma once

#include "steelyard/framework/words.h"
#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/qconfig.h"

namespace steelyard::observers {

inline constexpr Word<Strategy> kStrategyWords[] = {
    {Strategy::kTensor, "tensor"},
    {Strategy::kChannel, "channel"},
    {Strategy::kGroup, "group"},
    {Strategy::kToken, "token"},
};
static_assert(is_complete<Strategy>(kStrategyWords, Strategy::kToken));
constexpr std::span<const Word<Strategy>> words_of(Strategy) { return kStrategyWords; }

}  // namespace steelyard::observers

namespace steelyard::qat {

inline constexpr Word<BatchNormFold> kBatchNormFoldWords[] = {
    {BatchNormFold::kFrozen, "frozen"},
    {BatchNormFold::kNone, "none"},
    {BatchNormFold::kBatchCorrected, "batch_corrected"},
    {BatchNormFold::kOneConvolution, "one_convolution"},
};
static_assert(is_complete<BatchNormFold>(kBatchNormFoldWords, BatchNormFold::kOneConvolution));
constexpr std::span<const Word<BatchNormFold>> words_of(BatchNormFold) {
  return kBatchNormFoldWords;
}

inline constexpr Word<Profile> kProfileWords[] = {
    {Profile::kOrt, "ort"},
    {Profile::kTensorrt, "tensorrt"},
};
static_assert(is_complete<Profile>(kProfileWords, Profile::kTensorrt));
constexpr std::span<const Word<Profile>> words_of(Profile) { return kProfileWords; }

// The algorithms of a recipe are what they let quantizers learn.
inline constexpr Word<Learning> kLearningWords[] = {
    {Learning::kNothing, "ste", "straight-through estimator; observers find the ranges"},
    {Learning::kScale, "lsq", "learned scales, from where the observer's first range puts them"},
    {Learning::kScaleAndZeroPoint, "lsq_plus",
     "learned scales, and offsets of affine activations, which move the zero point"},
    {Learning::kClipping, "pact",
     "learned clipping of activations, which decays as weights do; observers find the ranges of "
     "weights"},
};
static_assert(is_complete<Learning>(kLearningWords, Learning::kClipping));
constexpr std::span<const Word<Learning>> words_of(Learning) { return kLearningWords; }

}  // namespace steelyard::qat
