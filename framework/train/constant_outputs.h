// The losses of models that say nothing: whose outputs are the same for every sample.
#pragma once

#include <cstdint>
#include <string>

#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/train/loss.h"

namespace steelyard {

struct ConstantOutputs {
  double loss = 0;  // 0: not known
  std::string outputs = "outputs that are all zero";
};

// Of a few such models the one with the least loss on `dataset`: outputs that are all zero; where
// targets are values, the mean of those of `train`; where they are texts, frames that all have the
// same probabilities, of the blank another than of the characters.
ConstantOutputs constant_outputs(const Loss& loss, const Dataset& train, const Dataset& dataset);

// CTC's loss of `texts` i64 [N, L], each followed by -1 where it is shorter, for `frames` frames
// that all give the blank the probability `blank` and the `characters` - 1 others equal ones.
// Infinite where a text does not fit into the frames, unless such a text counts as 0.
double ctc_of_constant_frames(const Tensor& texts, std::int64_t frames, std::int64_t characters,
                              double blank, bool zero_infinity);

}  // namespace steelyard
