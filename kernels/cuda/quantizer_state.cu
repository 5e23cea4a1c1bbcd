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

  template <typename F>
  void each_pointer(const F& f) const {
    f(x);
  }
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

// One warp, one scale: the largest bias among its channels.
__global__ void fit_weight_scales_kernel(std::int64_t sharers, const float* bias,
                                         const float* x_scale, const std::uint8_t* zero_range,
                                         float* scale, float* floor) {
  const std::int64_t c = blockIdx.x;
  float largest = 0;
  for (std::int64_t i = threadIdx.x; bias != nullptr && i < sharers; i += warpSize) {
    largest = larger_magnitude(largest, bias[c * sharers + i]);
  }
  for (int half = warpSize / 2; half > 0; half /= 2) {
    largest = larger_magnitude(largest, __shfl_down_sync(0xFFFFFFFFU, largest, half));
  }
  if (threadIdx.x != 0) return;
  const FittedScale fitted = fit_weight_scale(scale[c], zero_range[c] != 0, largest, *x_scale);
  scale[c] = fitted.scale;
  if (floor != nullptr) floor[c] = fitted.floor;
}

__global__ void quantize_biases_kernel(std::int64_t n, const float* bias, const float* x_scale,
                                       std::int64_t scales, const float* weight_scale,
                                       float* product_scale, std::int32_t* codes,
                                       std::int64_t* non_finite) {
  const std::int64_t o = element_index();
  if (o >= n) return;
  const float product = *x_scale * weight_scale[scales > 1 ? o : 0];
  product_scale[o] = product;
  if (bias == nullptr) return;
  const bool finite = is_finite(bias[o]);
  codes[o] = finite ? quantize_bias(bias[o], product) : 0;
  count(!finite, non_finite);
}

__global__ void follow_latents_kernel(std::int64_t n, CodeRange range, const float* latent,
                                      const float* initial, const float* floor,
                                      const float* zero_latent, float* scale,
                                      std::int32_t* zero_point, std::int64_t* non_finite,
                                      float* step_scale, std::int32_t* step_zero_point) {
  const std::int64_t c = element_index();
  if (c >= n) return;
  const bool moves = is_finite(latent[c]);
  count(!moves, non_finite);
  if (moves) scale[c] = scale_of_latent(latent[c], initial[c], floor[c], range);
  if (moves && zero_latent != nullptr) {
    const bool shifts = is_finite(zero_latent[c]);
    count(!shifts, non_finite);
    if (shifts) zero_point[c] = zero_point_of_latent(zero_latent[c], range);
  }
  if (step_scale != nullptr) step_scale[c] = scale[c];
  if (step_zero_point != nullptr) step_zero_point[c] = zero_point[c];
}

__global__ void chain_latent_kernel(std::int64_t n, const float* scale, const float* initial,
                                    float* grad) {
  const std::int64_t c = element_index();
  if (c < n) grad[c] *= latent_slope(scale[c], initial[c]);
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

void fit_weight_scales(const CudaQueue& queue, std::int64_t outputs, const float* bias,
                       const float* x_scale, std::int64_t scales, const std::uint8_t* zero_range,
                       float* scale, float* floor) {
  if (scales == 0) return;
  cuda::launch(fit_weight_scales_kernel, {scales, 32}, cuda::stream_of(queue), outputs / scales,
               bias, x_scale, zero_range, scale, floor);
}

void quantize_biases(const CudaQueue& queue, std::int64_t outputs, const float* bias,
                     const float* x_scale, std::int64_t scales, const float* weight_scale,
                     float* product_scale, std::int32_t* codes, std::int64_t* non_finite) {
  launch_elements(queue, quantize_biases_kernel, outputs, bias, x_scale, scales, weight_scale,
                  product_scale, codes, non_finite);
}

void follow_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                    const float* latent, const float* initial, const float* floor,
                    const float* zero_latent, float* scale, std::int32_t* zero_point,
                    std::int64_t* non_finite, float* step_scale, std::int32_t* step_zero_point) {
  launch_elements(queue, follow_latents_kernel, channels, range, latent, initial, floor,
                  zero_latent, scale, zero_point, non_finite, step_scale, step_zero_point);
}

void chain_latent_gradient(const CudaQueue& queue, std::int64_t channels, const float* scale,
                           const float* initial, float* grad) {
  launch_elements(queue, chain_latent_kernel, channels, scale, initial, grad);
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
