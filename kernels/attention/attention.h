// Causal attention of several heads, without a matrix of all pairs of positions: softmax is
// computed as the keys are visited, and again in the backward pass, from the logarithms of its
// sums. Source: Dao et al., "FlashAttention", 2022, arXiv:2205.14135.
#pragma once

#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// Values that a head may have at most.
inline constexpr std::int64_t kMostHeadWidth = 256;

// A head of queries [samples, length, heads, width] reads the keys and values [samples, length,
// key_heads, width] of head / (heads / key_heads).
struct AttentionShape {
  std::int64_t samples, length, heads, key_heads, width;

  STEELYARD_HOST_DEVICE std::int64_t group() const { return heads / key_heads; }
  // Where the values of a position's head begin.
  STEELYARD_HOST_DEVICE std::int64_t query_at(std::int64_t sample, std::int64_t head,
                                              std::int64_t position) const {
    return ((sample * length + position) * heads + head) * width;
  }
  STEELYARD_HOST_DEVICE std::int64_t key_at(std::int64_t sample, std::int64_t key_head,
                                            std::int64_t position) const {
    return ((sample * length + position) * key_heads + key_head) * width;
  }
  // Of arrays [samples, heads, length].
  STEELYARD_HOST_DEVICE std::int64_t row_of(std::int64_t sample, std::int64_t head,
                                            std::int64_t position) const {
    return (sample * heads + head) * length + position;
  }
};

// y[i] = sum over j <= i of p[j] v[j] with p = softmax(q[i] . k[j] / sqrt(width)); writes
// log_sums [samples, heads, length] = log(sum over j of exp(q[i] . k[j] / sqrt(width))).
template <typename T>
struct CausalAttention {
  AttentionShape shape;
  const T *q, *k, *v;
  T *y, *log_sums;
};

// The gradients of q, k and v, in an order that does not depend on the number of threads.
// `projections` [samples, heads, length] is written: y[i] . grad_y[i].
template <typename T>
struct CausalAttentionBackward {
  AttentionShape shape;
  const T *q, *k, *v, *y, *grad_y, *log_sums;
  T *projections, *grad_q, *grad_k, *grad_v;
};

using AttentionKernels = ForFloats<CausalAttention, CausalAttentionBackward>;

}  // namespace steelyard::kernels
