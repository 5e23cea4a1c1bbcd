#include "kernels/oscillation.h"

#include "kernels/cpu/parallel.h"
#include "kernels/oscillation_rules.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 16384;  // weights per thread that pay for waking it

// f(i, channel of i) for every element.
template <typename F>
void for_each_element(const ChannelLayout& layout, const F& f) {
  parallel_for(layout.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) f(i, i / layout.inner % layout.channels);
  });
}

}  // namespace

void begin_oscillations(std::int64_t n, const std::int8_t* codes, const OscillationState& state) {
  for (std::int64_t i = 0; i < n; ++i) {
    state.code[i] = codes[i];
    state.direction[i] = 0;
    state.frequency[i] = 0;
    state.mean_code[i] = codes[i];
    state.frozen[i] = 0;
  }
}

void track_oscillations(std::int64_t n, const std::int8_t* codes, float momentum,
                        const float* freeze_above, const OscillationState& state) {
  parallel_for(n, kGrain, [=, above = *freeze_above](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (state.frozen[i] != 0) continue;
      track_oscillation(codes[i], momentum, above, state.code[i], state.direction[i],
                        state.frequency[i], state.mean_code[i], state.frozen[i]);
    }
  });
}

void count_oscillations(std::int64_t n, float frequency, const OscillationState& state,
                        std::int64_t* counts) {
  counts[0] = counts[1] = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    counts[0] += state.frozen[i];
    counts[1] += state.frozen[i] == 0 && state.frequency[i] > frequency;
  }
}

template <typename T>
void add_damping_gradient(const ChannelLayout& layout, CodeRange range, const double* lambda,
                          const T* x, const T* scale, const std::int8_t* codes, T* grad) {
  if (*lambda == 0) return;
  const T factor = T(2 * *lambda);
  for_each_element(layout, [&](std::int64_t i, std::int64_t channel) {
    grad[i] = damped(grad[i], factor, x[i], scale[channel], codes[i], range);
  });
}

void hold_frozen(const ChannelLayout& layout, const OscillationState& state, const float* scale,
                 float* x, float* grad) {
  for_each_element(layout, [&](std::int64_t i, std::int64_t channel) {
    if (state.frozen[i] == 0) return;
    x[i] = dequantize_code(static_cast<float>(state.code[i]), 0.0F, scale[channel]);
    if (grad != nullptr) grad[i] = 0;
  });
}

template void add_damping_gradient(const ChannelLayout&, CodeRange, const double*, const float*,
                                   const float*, const std::int8_t*, float*);
template void add_damping_gradient(const ChannelLayout&, CodeRange, const double*, const double*,
                                   const double*, const std::int8_t*, double*);

}  // namespace steelyard::kernels
