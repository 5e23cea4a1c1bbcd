// What a quantizer keeps, updated where it lives: observed ranges, scales and zero points, learned
// latents, and the biases and scale limits that follow from them. No function reads its results on
// the host.
//
// Arrays have one value per channel of the quantizer unless said otherwise. Counters (may be null)
// grow by what was met. CPU and GPU give the same bits (kernels/quantizer_rules.h).
#pragma once

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// One step's finite extremes enter a running range: lo > hi says that a channel has seen nothing,
// or that the step had nothing finite for it, which leaves the range. The first: the extremes of
// all steps; the second: their mean at first, and once a step would weigh less than `constant` in
// it, their moving average with that weight of the newest step. steps [channels] counts the mean's.
void update_extremes(std::int64_t channels, const float* step_lo, const float* step_hi, float* lo,
                     float* hi);
void update_average_extremes(std::int64_t channels, double constant, const float* step_lo,
                             const float* step_hi, float* lo, float* hi, std::int64_t* steps);

// scale, zero_point = qparams_of_range(lo, hi); zero_range (u8, may be null) = 1 where the range
// was zero or empty. T is float or double.
template <typename T>
void qparams_of_ranges(std::int64_t channels, CodeRange range, bool symmetric, const T* lo,
                       const T* hi, float* scale, std::int32_t* zero_point,
                       std::uint8_t* zero_range);

// How the extremes of each step make a range, and the range a scale.
struct RangeRule {
  double averaging = 0;   // as `constant` of update_average_extremes(); 0: extremes of all steps
  bool restarts = false;  // the range is that of the newest step alone
  CodeRange codes = {};
  bool symmetric = false;
};

// A quantizer with one scale and the range that its observer keeps, where they live.
struct RangeQuantizer {
  float* lo;  // lo > hi before the first finite value
  float* hi;
  std::int64_t* steps;  // of an average; null for extremes of all steps
  float* scale;
  std::int32_t* zero_point;
  std::uint8_t* zero_range;  // becomes 1 where the range is zero or empty
  std::int64_t* non_finite;  // a counter
  // Copies of what this step quantizes with.
  float* step_scale;
  std::int32_t* step_zero_point;

  template <typename F>
  void each_pointer(const F& f) const {
    f(lo);
    f(hi);
    f(steps);
    f(scale);
    f(zero_point);
    f(zero_range);
    f(non_finite);
    f(step_scale);
    f(step_zero_point);
  }
};

// min_max(), update_extremes() or update_average_extremes() and qparams_of_ranges() of n values; on
// a GPU one launch.
void observe_values(const RangeRule& rule, const RangeQuantizer& to, std::int64_t n,
                    const float* x);

// The weights' scales of a product of `outputs` channels with a bias (NUMERICS): where the range of
// a channel's weights was zero, its scale comes from the bias, and every scale is large enough that
// the bias fits int32 and that s_x * s_w is a normal float. `scales` is 1 or outputs, and the size
// of zero_range, scale and floor. bias [outputs] may be null; floor (may be null) = the smallest
// scales that the bias allows.
void fit_weight_scales(std::int64_t outputs, const float* bias, const float* x_scale,
                       std::int64_t scales, const std::uint8_t* zero_range, float* scale,
                       float* floor);

// product_scale [outputs] = float(s_x * s_w) and, where bias [outputs] is not null, its int32
// codes of these scales. weight_scale has `scales` values, 1 or outputs. Biases that are not finite
// have code 0 and are counted.
void quantize_biases(std::int64_t outputs, const float* bias, const float* x_scale,
                     std::int64_t scales, const float* weight_scale, float* product_scale,
                     std::int32_t* codes, std::int64_t* non_finite);

// scale = scale_of_latent(latent, initial, floor) and, where zero_latent is not null, zero_point =
// its code. A latent that is not finite leaves them and is counted. step_scale and step_zero_point
// (may be null) become copies.
void follow_latents(std::int64_t channels, CodeRange range, const float* latent,
                    const float* initial, const float* floor, const float* zero_latent,
                    float* scale, std::int32_t* zero_point, std::int64_t* non_finite,
                    float* step_scale, std::int32_t* step_zero_point);

// grad *= min(1, scale / initial): from the gradient of scales to that of their latents.
void chain_latent_gradient(std::int64_t channels, const float* scale, const float* initial,
                           float* grad);

// The same range in codes of another width: scale *= ratio of the steps, kept within its limits,
// and, where affine, the zero point in the same place.
void rescale_qparams(std::int64_t channels, CodeRange from, CodeRange to, bool symmetric,
                     float* scale, std::int32_t* zero_point);

// The same on a GPU.
void update_extremes(const CudaQueue& queue, std::int64_t channels, const float* step_lo,
                     const float* step_hi, float* lo, float* hi);
void update_average_extremes(const CudaQueue& queue, std::int64_t channels, double constant,
                             const float* step_lo, const float* step_hi, float* lo, float* hi,
                             std::int64_t* steps);
template <typename T>
void qparams_of_ranges(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                       bool symmetric, const T* lo, const T* hi, float* scale,
                       std::int32_t* zero_point, std::uint8_t* zero_range);
void observe_values(const CudaQueue& queue, const RangeRule& rule, const RangeQuantizer& to,
                    std::int64_t n, const float* x);
void fit_weight_scales(const CudaQueue& queue, std::int64_t outputs, const float* bias,
                       const float* x_scale, std::int64_t scales, const std::uint8_t* zero_range,
                       float* scale, float* floor);
void quantize_biases(const CudaQueue& queue, std::int64_t outputs, const float* bias,
                     const float* x_scale, std::int64_t scales, const float* weight_scale,
                     float* product_scale, std::int32_t* codes, std::int64_t* non_finite);
void follow_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                    const float* latent, const float* initial, const float* floor,
                    const float* zero_latent, float* scale, std::int32_t* zero_point,
                    std::int64_t* non_finite, float* step_scale, std::int32_t* step_zero_point);
void chain_latent_gradient(const CudaQueue& queue, std::int64_t channels, const float* scale,
                           const float* initial, float* grad);
void rescale_qparams(const CudaQueue& queue, std::int64_t channels, CodeRange from, CodeRange to,
                     bool symmetric, float* scale, std::int32_t* zero_point);

}  // namespace steelyard::kernels
