#include "kernels/quantizer_state.h"

#include "kernels/cuda/range_update.h"
#include "kernels/quantizer_rules.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::launch_elements;

using cuda::count;

// A value of the array.
struct ValueOf {
  const float* x;

  __device__ float operator()(std::int64_t i) const { return x[i]; }
};

__global__ void update_extremes_kernel(std::int64_t n, const float* step_lo, const float* step_hi,
                                       float* lo, float* hi) {
  const std::int64_t c = element_index();
  if (c < n) extend_range(lo[c], hi[c], step_lo[c], step_hi[c]);
}

__global__ void update_average_kernel(std::int64_t n, double constant, const float* step_lo,
                                      const float* step_hi, float* lo, float* hi,
                                      std::int64_t* steps) {
  const std::int64_t c = element_index();
  if (c < n) average_range(lo[c], hi[c], steps[c], step_lo[c], step_hi[c], constant);
}

template <typename T>
__global__ void qparams_kernel(std::int64_t n, CodeRange range, bool symmetric, const T* lo,
                               const T* hi, float* scale, std::int32_t* zero_point,
                               std::uint8_t* zero_range) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  const auto chosen = qparams_of_range<float>(lo[c], hi[c], range, symmetric);
  scale[c] = chosen.scale;
  zero_point[c] = chosen.zero_point;
  if (zero_range != nullptr) zero_range[c] = is_zero_range(lo[c], hi[c]) ? 1 : 0;
}

__global__ void begin_latents_kernel(std::int64_t n, CodeRange range, const float* scale,
                                     const std::int32_t* zero_point, float* initial, float* latent,
                                     float* offset) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  initial[c] = latent[c] = scale[c];
  if (offset != nullptr) offset[c] = offset_of(zero_point[c], scale[c], range);
}

__global__ void follow_latents_kernel(std::int64_t n, CodeRange range, const float* latent,
                                      const float* initial, const float* floor, const float* offset,
                                      float* scale, std::int32_t* zero_point,
                                      std::int64_t* non_finite, float* step_scale,
                                      std::int32_t* step_zero_point) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  const bool moves = is_finite(latent[c]);
  count(!moves, non_finite);
  if (moves) scale[c] = scale_of_latent(latent[c], initial[c], floor[c], range);
  if (moves && offset != nullptr) {
    const bool shifts = is_finite(offset[c]);
    count(!shifts, non_finite);
    if (shifts) zero_point[c] = zero_point_of_offset(offset[c], scale[c], range);
  }
  if (step_scale != nullptr) step_scale[c] = scale[c];
  if (step_zero_point != nullptr) step_zero_point[c] = zero_point[c];
}

__global__ void chain_latents_kernel(std::int64_t n, CodeRange range, const float* scale,
                                     const float* initial, const std::int32_t* zero_point,
                                     const float* offset, float* grad_scale, float* grad_offset) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  chain_latent_gradient(c, range, scale, initial, zero_point, offset, grad_scale, grad_offset);
}

__global__ void rescale_kernel(std::int64_t n, CodeRange from, CodeRange to, bool symmetric,
                               float* scale, std::int32_t* zero_point) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  const auto moved = rescaled_qparams({scale[c], zero_point[c]}, from, to, symmetric);
  scale[c] = moved.scale;
  zero_point[c] = moved.zero_point;
}

}  // namespace

void update_extremes(const CudaQueue& queue, std::int64_t channels, const float* step_lo,
                     const float* step_hi, float* lo, float* hi) {
  launch_elements(queue, update_extremes_kernel, channels, step_lo, step_hi, lo, hi);
}

void update_average_extremes(const CudaQueue& queue, std::int64_t channels, double constant,
                             const float* step_lo, const float* step_hi, float* lo, float* hi,
                             std::int64_t* steps) {
  launch_elements(queue, update_average_kernel, channels, constant, step_lo, step_hi, lo, hi,
                  steps);
}

template <typename T>
void qparams_of_ranges(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                       bool symmetric, const T* lo, const T* hi, float* scale,
                       std::int32_t* zero_point, std::uint8_t* zero_range) {
  launch_elements(queue, qparams_kernel<T>, channels, range, symmetric, lo, hi, scale, zero_point,
                  zero_range);
}

void observe_values(const CudaQueue& queue, const RangeRule& rule, const RangeQuantizer& to,
                    std::int64_t n, const float* x) {
  cuda::observe_range<cuda::FiniteExtremes>(queue, rule, to, n, ValueOf{x});
}

void begin_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                   const float* scale, const std::int32_t* zero_point, float* initial,
                   float* latent, float* offset) {
  launch_elements(queue, begin_latents_kernel, channels, range, scale, zero_point, initial, latent,
                  offset);
}

void follow_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                    const float* latent, const float* initial, const float* floor,
                    const float* offset, float* scale, std::int32_t* zero_point,
                    std::int64_t* non_finite, float* step_scale, std::int32_t* step_zero_point) {
  launch_elements(queue, follow_latents_kernel, channels, range, latent, initial, floor, offset,
                  scale, zero_point, non_finite, step_scale, step_zero_point);
}

void chain_latent_gradients(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                            const float* scale, const float* initial,
                            const std::int32_t* zero_point, const float* offset, float* grad_scale,
                            float* grad_offset) {
  launch_elements(queue, chain_latents_kernel, channels, range, scale, initial, zero_point, offset,
                  grad_scale, grad_offset);
}

void rescale_qparams(const CudaQueue& queue, std::int64_t channels, CodeRange from, CodeRange to,
                     bool symmetric, float* scale, std::int32_t* zero_point) {
  launch_elements(queue, rescale_kernel, channels, from, to, symmetric, scale, zero_point);
}

template void qparams_of_ranges(const CudaQueue&, std::int64_t, CodeRange, bool, const float*,
                                const float*, float*, std::int32_t*, std::uint8_t*);
template void qparams_of_ranges(const CudaQueue&, std::int64_t, CodeRange, bool, const double*,
                                const double*, float*, std::int32_t*, std::uint8_t*);

}  // namespace steelyard::kernels
