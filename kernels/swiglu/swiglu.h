// Gated activation of a feed-forward layer: silu(gate) * up.
// Source: Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202.
#pragma once

#include "steelyard/kernels/activation/activation.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// y = silu(gate) * up.
template <typename T>
struct SwiGlu {
  static constexpr std::int64_t kGrain = 2048;
  std::int64_t n;
  const T *gate, *up;
  T *y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = activation_value(ActivationFunction::kSilu, gate[i]) * up[i];
  }
};

template <typename T>
struct SwiGluBackward {
  static constexpr std::int64_t kGrain = 2048;
  std::int64_t n;
  const T *gate, *up, *grad_y;
  T *grad_gate, *grad_up;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T of_gate = grad_y[i] * up[i];
    grad_up[i] = grad_y[i] * activation_value(ActivationFunction::kSilu, gate[i]);
    grad_gate[i] = of_gate * activation_slope(ActivationFunction::kSilu, gate[i]);
  }
};

using SwiGluKernels = ForFloats<SwiGlu, SwiGluBackward>;

}  // namespace steelyard::kernels
