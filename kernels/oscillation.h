// Weights whose integer codes flip between neighbours during training, and what stops them. Source:
// Nagel et al., "Overcoming Oscillations in Quantization-Aware Training", arXiv:2203.11086.
#pragma once

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/cuda_queue.h"
#include "kernels/layout.h"

namespace steelyard::kernels {

// What changes from step to step lies in memory where the weights are: a recorded CUDA graph that
// runs again reads it anew.

// What is known of each of n weights.
struct OscillationState {
  std::int8_t* code;       // of the last step, or the one kept where frozen
  std::int8_t* direction;  // sign of the code's last change, 0 before the first
  float* frequency;        // moving average of the steps that turned the direction, in [0, 1]
  float* mean_code;        // moving average of the codes
  std::uint8_t* frozen;    // 1: the code stays
};

// The state before the first step that quantizes, from its codes.
void begin_oscillations(std::int64_t n, const std::int8_t* codes, const OscillationState& state);

// One more step's codes: a change against the direction of the last change counts as 1 in the
// frequency, everything else as 0; averages move by momentum * (new - old). A weight whose
// frequency then exceeds *freeze_above is frozen at its rounded mean code.
void track_oscillations(std::int64_t n, const std::int8_t* codes, float momentum,
                        const float* freeze_above, const OscillationState& state);

// counts[0] = how many weights are frozen, counts[1] = how many others have a frequency above
// `frequency`.
void count_oscillations(std::int64_t n, float frequency, const OscillationState& state,
                        std::int64_t* counts);

// grad += d/dx of lambda * sum (s * code - clip(x, s * qmin, s * qmax))^2 for lambda = *lambda,
// with the codes held constant: 2 lambda (x - s * code) within the limits, 0 beyond. A lambda of 0
// leaves grad alone. Zero points are 0. T is float or double.
template <typename T>
void add_damping_gradient(const ChannelLayout& layout, CodeRange range, const double* lambda,
                          const T* x, const T* scale, const std::int8_t* codes, T* grad);

// x = s * code and, where grad is not null, grad = 0, for frozen weights.
void hold_frozen(const ChannelLayout& layout, const OscillationState& state, const float* scale,
                 float* x, float* grad);

// The same on a GPU.
void begin_oscillations(const CudaQueue& queue, std::int64_t n, const std::int8_t* codes,
                        const OscillationState& state);
void track_oscillations(const CudaQueue& queue, std::int64_t n, const std::int8_t* codes,
                        float momentum, const float* freeze_above, const OscillationState& state);
void count_oscillations(const CudaQueue& queue, std::int64_t n, float frequency,
                        const OscillationState& state, std::int64_t* counts);
template <typename T>
void add_damping_gradient(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                          const double* lambda, const T* x, const T* scale,
                          const std::int8_t* codes, T* grad);
void hold_frozen(const CudaQueue& queue, const ChannelLayout& layout, const OscillationState& state,
                 const float* scale, float* x, float* grad);

}  // namespace steelyard::kernels
