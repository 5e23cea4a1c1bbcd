// The names of quantization's enumeration values in recipes and messages.
#pragma once

#include <array>

#include "steelyard/framework/tensor/rounding_words.h"  // IWYU pragma: export
#include "steelyard/framework/tensor/words.h"
#include "steelyard/kernels/granularity.h"
#include "steelyard/observers/qscheme.h"
#include "steelyard/qat/quantizers/qconfig.h"

namespace steelyard::kernels {

inline constexpr auto kGranularityWords = [] {
  std::array<Word<Granularity>, kGranularityNames.size()> words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = {static_cast<Granularity>(i), kGranularityNames[i]};
  }
  return words;
}();
static_assert(is_complete<Granularity>(kGranularityWords, Granularity::kBlock));
constexpr std::span<const Word<Granularity>> words_of(Granularity) { return kGranularityWords; }

}  // namespace steelyard::kernels

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
    {Profile::kTflm, "tflm"},
    {Profile::kTflmSingleRounding, "tflm_single_rounding"},
};
static_assert(is_complete<Profile>(kProfileWords, Profile::kTflmSingleRounding));
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
