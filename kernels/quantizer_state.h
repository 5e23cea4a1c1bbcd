// What a quantizer keeps, updated where it lives: observed ranges, scales and zero points, learned
// latents. No function reads its results on the host.
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
};

// min_max(), update_extremes() or update_average_extremes() and qparams_of_ranges() of n values; on
// a GPU one launch.
void observe_values(const RangeRule& rule, const RangeQuantizer& to, std::int64_t n,
                    const float* x);

// Latents begin where scale and zero point are: initial = latent = scale and, where offset is not
// null, offset = the real value of the lowest code.
void begin_latents(std::int64_t channels, CodeRange range, const float* scale,
                   const std::int32_t* zero_point, float* initial, float* latent, float* offset);

// scale = scale_of_latent(latent, initial, floor) and, where offset is not null, zero_point = the
// code that comes nearest to making the lowest code stand for it. A latent that is not finite
// leaves them and is counted. step_scale and step_zero_point (may be null) become copies.
void follow_latents(std::int64_t channels, CodeRange range, const float* latent,
                    const float* initial, const float* floor, const float* offset, float* scale,
                    std::int32_t* zero_point, std::int64_t* non_finite, float* step_scale,
                    std::int32_t* step_zero_point);

// From the gradients of scales and zero points to those of their latents (latent_gradients() of
// kernels/quantizer_rules.h), in place. zero_point, offset and grad_offset are null where only
// scales learn.
void chain_latent_gradients(std::int64_t channels, CodeRange range, const float* scale,
                            const float* initial, const std::int32_t* zero_point,
                            const float* offset, float* grad_scale, float* grad_offset);

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
void begin_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                   const float* scale, const std::int32_t* zero_point, float* initial,
                   float* latent, float* offset);
void follow_latents(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                    const float* latent, const float* initial, const float* floor,
                    const float* offset, float* scale, std::int32_t* zero_point,
                    std::int64_t* non_finite, float* step_scale, std::int32_t* step_zero_point);
void chain_latent_gradients(const CudaQueue& queue, std::int64_t channels, CodeRange range,
                            const float* scale, const float* initial,
                            const std::int32_t* zero_point, const float* offset, float* grad_scale,
                            float* grad_offset);
void rescale_qparams(const CudaQueue& queue, std::int64_t channels, CodeRange from, CodeRange to,
                     bool symmetric, float* scale, std::int32_t* zero_point);

}  // namespace steelyard::kernels
