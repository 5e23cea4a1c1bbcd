// Rotary position embedding.
#pragma once

#include "steelyard/framework/autograd/autograd.h"
#include "steelyard/framework/tensor/words.h"

namespace steelyard {

// Which values of a head rotate together.
enum class RotaryPairs {
  kNeighbours,  // 2 i and 2 i + 1
  kHalves       // i and i + width / 2
};
inline constexpr Word<RotaryPairs> kRotaryPairsWords[] = {
    {RotaryPairs::kNeighbours, "neighbours"},
    {RotaryPairs::kHalves, "halves"},
};
static_assert(is_complete<RotaryPairs>(kRotaryPairsWords, RotaryPairs::kHalves));
constexpr std::span<const Word<RotaryPairs>> words_of(RotaryPairs) { return kRotaryPairsWords; }

struct RotaryOptions {
  std::int64_t width = 0;  // of a head, even
  double base = 10000;     // of the angles
  RotaryPairs pairs = RotaryPairs::kHalves;
  Tensor factors = {};     // f32 [width / 2], by which frequencies are divided; undefined: by 1
  std::int64_t first = 0;  // the position of the first
  Tensor starts = {};      // document_starts(), at which positions are 0; `first` is 0 with them
};

// x [samples, length, heads * width] with each pair i of a head rotated by the angle position *
// base^(-2 i / width) / factors[i]. Source: Su et al., arXiv:2104.09864.
Variable rotary(const Variable& x, const RotaryOptions& options);

// [samples, length] of tokens [samples, length], numbers in a dtype of floats: for each position
// that of its document's first token, which is 0 or follows a token `border`.
Tensor document_starts(const Tensor& tokens, std::int64_t border);

}  // namespace steelyard
