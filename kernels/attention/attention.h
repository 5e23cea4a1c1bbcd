// Causal attention of several heads, without a matrix of all pairs of positions: softmax is
// computed as the keys are visited, and again in the backward pass, from the logarithms of its
// sums. Source: Dao et al., "FlashAttention", 2022, arXiv:2205.14135.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Values that a head may have at most.
inline constexpr std::int64_t kMostHeadWidth = 256;

// A head of queries [samples, queries, heads, width] reads the keys and values [samples, keys,
// key_heads, width] of head / (heads / key_heads). The queries are those of the last of the keys'
// positions.
struct AttentionShape {
  std::int64_t samples, queries, keys, heads, key_heads, width;

  STEELYARD_HOST_DEVICE std::int64_t group() const { return heads / key_heads; }
  // Positions before that of the first query.
  STEELYARD_HOST_DEVICE std::int64_t earlier() const { return keys - queries; }
  // Where the values of a query's head begin.
  STEELYARD_HOST_DEVICE std::int64_t query_at(std::int64_t sample, std::int64_t head,
                                              std::int64_t query) const {
    return ((sample * queries + query) * heads + head) * width;
  }
  STEELYARD_HOST_DEVICE std::int64_t key_at(std::int64_t sample, std::int64_t key_head,
                                            std::int64_t key) const {
    return ((sample * keys + key) * key_heads + key_head) * width;
  }
  // Of arrays [samples, heads, queries].
  STEELYARD_HOST_DEVICE std::int64_t row_of(std::int64_t sample, std::int64_t head,
                                            std::int64_t query) const {
    return (sample * heads + head) * queries + query;
  }
  // The first key that a position sees, whose `starts` [samples, keys] may be null: the first one.
  template <typename T>
  STEELYARD_HOST_DEVICE std::int64_t start_of(const T *starts, std::int64_t sample,
                                              std::int64_t position) const {
    return starts == nullptr ? 0 : static_cast<std::int64_t>(starts[sample * keys + position]);
  }
};

// y[i] = sum over j of p[j] v[j] with p = softmax(q[i] . k[j] / sqrt(width)), over the keys j from
// the start of the query's position, which is not after it and does not fall with positions, to the
// position; writes log_sums [samples, heads, queries] = log(sum over j of exp(q[i] . k[j] /
// sqrt(width))).
template <typename T>
struct CausalAttention {
  AttentionShape shape;
  const T *q, *k, *v, *starts;
  T *y, *log_sums;
};

// The gradients of q, k and v, in an order that does not depend on the number of threads.
// `projections` [samples, heads, queries] is written: y[i] . grad_y[i].
template <typename T>
struct CausalAttentionBackward {
  AttentionShape shape;
  const T *q, *k, *v, *starts, *y, *grad_y, *log_sums;
  T *projections, *grad_q, *grad_k, *grad_v;
};

using AttentionKernels = ForFloats<CausalAttention, CausalAttentionBackward>;

}  // namespace steelyard::kernels
