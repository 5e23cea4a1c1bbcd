// Tokens that a language model goes on with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "steelyard/framework/autograd/module.h"
#include "steelyard/framework/tensor/rng.h"

namespace steelyard {

// How the next token is chosen by its logits.
struct SamplingOptions {
  double temperature = 0;  // by which logits are divided; 0: the largest logit
  std::int64_t top_k = 0;  // among so many with the largest logits; 0: among all
  double top_p = 1;        // and of these the fewest whose probabilities reach it
};

// The number of the next token: temperature, top_k and top_p in this order, as transformers has
// them. Of equal logits the lower number counts as larger. Throws std::invalid_argument for logits
// that are not finite.
std::int64_t choose_token(std::span<const float> logits, const SamplingOptions& options,
                          Rng& random);

// Calls `take` with each token that follows `tokens`, at least one, until it returns false. The
// model gives logits [1, T, vocabulary] of tokens f32 [1, T], each by those up to it; it is run on
// all of them for each new one.
void generate(Module& model, std::vector<std::int64_t> tokens, const SamplingOptions& options,
              std::uint64_t seed, const std::function<bool(std::int64_t)>& take);

}  // namespace steelyard
