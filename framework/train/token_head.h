// The last layer of a language model, whose logits are made for some tokens at a time.
#pragma once

#include "steelyard/framework/autograd/headed_model.h"
#include "steelyard/framework/train/loss.h"

namespace steelyard {

// The model as one whose head gives a row of logits for each token, which the loss compares one by
// one; null where it is not one.
HeadedModel* token_model(Module& model, const Loss& loss);

// For how many of so many tokens logits are made at a time: all, unless there would be many more
// than 64 MiB of them in float32; else a multiple of 16. `hidden` is what the head reads.
std::int64_t tokens_at_once(const Slot& head, const Variable& hidden, std::int64_t tokens);

}  // namespace steelyard
