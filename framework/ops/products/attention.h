// Causal attention.
#pragma once

#include "steelyard/framework/autograd/autograd.h"

namespace steelyard {

struct AttentionHeads {
  std::int64_t queries = 1;
  std::int64_t keys = 1;  // divides `queries`: heads of queries share those of keys and values
};

// y [samples, length, queries * width] = for each position and head softmax(q k / sqrt(width)) v
// over the positions up to its own; q of y's shape, k and v [samples, positions, keys * width]:
// with more of them than queries, these are at the last positions. `starts` [samples, positions],
// of document_starts(), are the first positions that are seen; undefined: 0. No matrix of all pairs
// of positions is made; keeps q, k, v, y and a number for each row of scores. Source: Dao et al.,
// arXiv:2205.14135; Ainslie et al., arXiv:2305.13245.
Variable causal_attention(const Variable& q, const Variable& k, const Variable& v,
                          const AttentionHeads& heads, const Tensor& starts = {});

}  // namespace steelyard
