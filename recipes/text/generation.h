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

// Calls `take` with each token that follows `tokens`, at least one, until it returns false or has
// got `most`. The model (Decoding, in layers/decoding.h) keeps keys and values; after the pass over
// `tokens`, each token is a pass over one.
void generate(const Module& model, const std::vector<std::int64_t>& tokens, std::int64_t most,
              const SamplingOptions& options, std::uint64_t seed,
              const std::function<bool(std::int64_t)>& take);

}  // namespace steelyard
