#include "kernels/oscillation.h"

#include <algorithm>

#include "kernels/cuda/grid.h"
#include "kernels/oscillation_rules.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kThreads;
using cuda::launch_elements;

// The channel of element i of rows of `inner` elements.
__device__ std::int64_t channel_of(std::int64_t i, std::int64_t channels, std::int64_t inner) {
  return channels == 1 ? 0 : cuda::divide(i, inner) % channels;
}

__global__ void begin_kernel(std::int64_t n, const std::int8_t* codes, std::int8_t* code,
                             std::int8_t* direction, float* frequency, float* mean_code,
                             std::uint8_t* frozen) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  code[i] = codes[i];
  direction[i] = 0;
  frequency[i] = 0;
  mean_code[i] = codes[i];
  frozen[i] = 0;
}

__global__ void track_kernel(std::int64_t n, const std::int8_t* codes, float momentum,
                             const float* freeze_above, std::int8_t* code, std::int8_t* direction,
                             float* frequency, float* mean_code, std::uint8_t* frozen) {
  const std::int64_t i = element_index();
  if (i >= n || frozen[i] != 0) return;
  track_oscillation(codes[i], momentum, *freeze_above, code[i], direction[i], frequency[i],
                    mean_code[i], frozen[i]);
}

__global__ void clear_counts_kernel(std::int64_t n, unsigned long long* counts) {
  if (element_index() < n) counts[element_index()] = 0;
}

__global__ void __launch_bounds__(kThreads)
    count_kernel(std::int64_t n, float above, const float* frequency, const std::uint8_t* frozen,
                 unsigned long long* counts) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  unsigned long long held = 0;
  unsigned long long oscillating = 0;
  for (std::int64_t i = element_index(); i < n; i += step) {
    held += frozen[i];
    oscillating += frozen[i] == 0 && frequency[i] > above ? 1 : 0;
  }
  for (int half = warpSize / 2; half > 0; half /= 2) {
    held += __shfl_down_sync(0xFFFFFFFFU, held, half);
    oscillating += __shfl_down_sync(0xFFFFFFFFU, oscillating, half);
  }
  if (threadIdx.x % warpSize != 0) return;
  if (held != 0) atomicAdd(counts, held);
  if (oscillating != 0) atomicAdd(counts + 1, oscillating);
}

template <typename T>
__global__ void damping_kernel(std::int64_t n, std::int64_t channels, std::int64_t inner,
                               CodeRange range, const double* lambda, const T* x, const T* scale,
                               const std::int8_t* codes, T* grad) {
  const std::int64_t i = element_index();
  if (i >= n || *lambda == 0) return;
  grad[i] =
      damped(grad[i], T(2 * *lambda), x[i], scale[channel_of(i, channels, inner)], codes[i], range);
}

__global__ void hold_kernel(std::int64_t n, std::int64_t channels, std::int64_t inner,
                            const std::int8_t* code, const std::uint8_t* frozen, const float* scale,
                            float* x, float* grad) {
  const std::int64_t i = element_index();
  if (i >= n || frozen[i] == 0) return;
  x[i] = dequantize_code(static_cast<float>(code[i]), 0.0F, scale[channel_of(i, channels, inner)]);
  if (grad != nullptr) grad[i] = 0;
}

}  // namespace

void begin_oscillations(const CudaQueue& queue, std::int64_t n, const std::int8_t* codes,
                        const OscillationState& state) {
  launch_elements(queue, begin_kernel, n, codes, state.code, state.direction, state.frequency,
                  state.mean_code, state.frozen);
}

void track_oscillations(const CudaQueue& queue, std::int64_t n, const std::int8_t* codes,
                        float momentum, const float* freeze_above, const OscillationState& state) {
  launch_elements(queue, track_kernel, n, codes, momentum, freeze_above, state.code,
                  state.direction, state.frequency, state.mean_code, state.frozen);
}

void count_oscillations(const CudaQueue& queue, std::int64_t n, float frequency,
                        const OscillationState& state, std::int64_t* counts) {
  constexpr std::int64_t kMostBlocks = 1024;
  auto* const both = reinterpret_cast<unsigned long long*>(counts);
  launch_elements(queue, clear_counts_kernel, 2, both);
  cuda::launch(count_kernel, {std::min(kMostBlocks, (n + kThreads - 1) / kThreads), kThreads},
               cuda::stream_of(queue), n, frequency, static_cast<const float*>(state.frequency),
               static_cast<const std::uint8_t*>(state.frozen), both);
}

template <typename T>
void add_damping_gradient(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                          const double* lambda, const T* x, const T* scale,
                          const std::int8_t* codes, T* grad) {
  launch_elements(queue, damping_kernel<T>, layout.size(), layout.channels, layout.inner, range,
                  lambda, x, scale, codes, grad);
}

void hold_frozen(const CudaQueue& queue, const ChannelLayout& layout, const OscillationState& state,
                 const float* scale, float* x, float* grad) {
  launch_elements(queue, hold_kernel, layout.size(), layout.channels, layout.inner, state.code,
                  state.frozen, scale, x, grad);
}

template void add_damping_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const double*,
                                   const float*, const float*, const std::int8_t*, float*);
template void add_damping_gradient(const CudaQueue&, const ChannelLayout&, CodeRange, const double*,
                                   const double*, const double*, const std::int8_t*, double*);

}  // namespace steelyard::kernels
