// Weights whose integer codes flip between neighbours during training, and what stops them. Source:
// Nagel et al., "Overcoming Oscillations in Quantization-Aware Training", arXiv:2203.11086.
//
// What changes from step to step lies in memory where the weights are: a captured CUDA graph that
// runs again reads it anew.
#pragma once

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// What is known of each of n weights.
struct OscillationState {
  std::int8_t* code;       // of the last step, or the one kept where frozen
  std::int8_t* direction;  // sign of the code's last change, 0 before the first
  float* frequency;        // moving average of the steps that turned the direction, in [0, 1]
  float* mean_code;        // moving average of the codes
  std::uint8_t* frozen;    // 1: the code stays
};

// The state before the first step that quantizes, from its codes.
struct BeginOscillations {
  std::int64_t n;
  const std::int8_t* codes;
  OscillationState state;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    state.code[i] = codes[i];
    state.direction[i] = 0;
    state.frequency[i] = 0;
    state.mean_code[i] = codes[i];
    state.frozen[i] = 0;
  }
};

// One more step's codes: a change against the direction of the last change counts as 1 in the
// frequency, everything else as 0; averages move by momentum * (new - old). A weight whose
// frequency then exceeds *freeze_above is frozen at its rounded mean code.
struct TrackOscillations {
  static constexpr std::int64_t kGrain = 16384;
  std::int64_t n;
  const std::int8_t* codes;
  float momentum;
  const float* freeze_above;
  OscillationState state;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    if (state.frozen[i] != 0) return;
    const std::int8_t code = codes[i];
    const int change = (code > state.code[i]) - (code < state.code[i]);
    const float flip = change * state.direction[i] < 0 ? 1.0F : 0.0F;
    const float frequency = state.frequency[i] + momentum * (flip - state.frequency[i]);
    const float mean =
        state.mean_code[i] + momentum * (static_cast<float>(code) - state.mean_code[i]);
    const bool freezes = frequency > *freeze_above;
    if (change != 0) state.direction[i] = static_cast<std::int8_t>(change);
    state.frequency[i] = frequency;
    state.mean_code[i] = mean;
    state.frozen[i] = freezes ? 1 : 0;
    state.code[i] = freezes ? static_cast<std::int8_t>(round_half_even(mean)) : code;
  }
};

// counts[0] = how many of `rows` weights are frozen, counts[1] = how many others have a frequency
// above `frequency`.
struct CountOscillations {
  static constexpr std::int64_t channels = 1;
  static constexpr int kTerms = 2;
  std::int64_t rows;
  float frequency;
  OscillationState state;
  std::int64_t* counts;
  template <int n>
  STEELYARD_HOST_DEVICE float term(std::int64_t weight, std::int64_t) const {
    const bool frozen = state.frozen[weight] != 0;
    const bool others = !frozen && state.frequency[weight] > frequency;
    return (n == 0 ? frozen : others) ? 1.0F : 0.0F;
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t, const double (&sums)[2]) const {
    counts[0] = static_cast<std::int64_t>(sums[0]);
    counts[1] = static_cast<std::int64_t>(sums[1]);
  }
};

// grad += d/dx of lambda * sum (s * (code - z) - clip(x, s * (qmin - z), s * (qmax - z)))^2 for
// lambda = *lambda, with the codes held constant: 2 lambda (x - s * (code - z)) within the limits,
// 0 beyond. A lambda of 0 leaves grad alone. A null zero_point means 0. T is float or double.
template <typename T>
struct AddDampingGradient {
  static constexpr std::int64_t kGrain = 16384;
  ChannelLayout layout;
  CodeRange range;
  const double* lambda;
  const T *x, *scale;
  const std::int32_t* zero_point;
  const std::int8_t* codes;
  T* grad;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t channel) const {
    const T s = scale[channel];
    const std::int32_t z = zero_point == nullptr ? 0 : zero_point[channel];
    const bool within = x[i] >= s * T(range.qmin - z) && x[i] <= s * T(range.qmax - z);
    if (!within || *lambda == 0) return;
    grad[i] += T(2 * *lambda) * (x[i] - dequantize_code(T(codes[i]), T(z), s));
  }
};

// x = s * (code - z), z = 0 where zero_point is null, and, where grad is not null, grad = 0, for
// frozen weights.
struct HoldFrozen {
  static constexpr std::int64_t kGrain = 16384;
  ChannelLayout layout;
  OscillationState state;
  const float* scale;
  const std::int32_t* zero_point;
  float *x, *grad;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t channel) const {
    if (state.frozen[i] == 0) return;
    const float z = zero_point == nullptr ? 0.0F : static_cast<float>(zero_point[channel]);
    x[i] = dequantize_code(static_cast<float>(state.code[i]), z, scale[channel]);
    if (grad != nullptr) grad[i] = 0;
  }
};

using OscillationKernels =
    JoinedKernels<KernelList<BeginOscillations, TrackOscillations, CountOscillations, HoldFrozen>,
                  ForFloats<AddDampingGradient>>;

}  // namespace steelyard::kernels
