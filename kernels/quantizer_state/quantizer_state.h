// A quantizer's state, updated on its own device: observed ranges, scales and zero points, learned
// latents. No kernel's results are read on the host.
//
// Arrays have one value per channel of the quantizer unless said otherwise, and n counts the
// channels. Counters (may be null) grow by what was met. CPU and GPU give the same bits
// (formulas.h).
#pragma once

#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// One step's finite extremes enter a running range: lo > hi says that a channel has seen nothing,
// or that the step had nothing finite for it, which leaves the range. With an averaging constant of
// 0 the range has the extremes of all steps; else their mean at first, and once a step would weigh
// less than the constant in it, their moving average with that weight of the newest step. steps
// counts the mean's.
struct UpdateExtremes {
  std::int64_t n;
  double averaging;
  const float *step_lo, *step_hi;
  float *lo, *hi;
  std::int64_t* steps;  // of an average

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    if (averaging > 0) {
      average_range(lo[c], hi[c], steps[c], step_lo[c], step_hi[c], averaging);
    } else {
      extend_range(lo[c], hi[c], step_lo[c], step_hi[c]);
    }
  }
};

// maxima[2, n] = max(maxima, (-lo, hi)): extremes of parts, which one maximum merges; a zero loses
// its sign, so that the order does not show. The second kernel: the extremes that they stand for.
struct GatherExtremes {
  std::int64_t n;
  const float *lo, *hi;
  float* maxima;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    if (!(lo[c] <= hi[c])) return;
    const float low = 0.0F - lo[c], high = hi[c] + 0.0F;
    maxima[c] = maxima[c] < low ? low : maxima[c];
    maxima[n + c] = maxima[n + c] < high ? high : maxima[n + c];
  }
};
struct GatheredExtremes {
  std::int64_t n;
  const float* maxima;
  float *lo, *hi;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    lo[c] = 0.0F - maxima[c];
    hi[c] = maxima[n + c];
  }
};

// scale, zero_point = qparams_of_range(lo, hi); zero_range (u8, may be null) = 1 where the range
// was zero or empty. T is float or double.
template <typename T>
struct QparamsOfRanges {
  std::int64_t n;
  CodeRange range;
  bool symmetric;
  const T *lo, *hi;
  float* scale;
  std::int32_t* zero_point;
  std::uint8_t* zero_range;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const auto chosen = qparams_of_range<float>(lo[c], hi[c], range, symmetric);
    scale[c] = chosen.scale;
    zero_point[c] = chosen.zero_point;
    if (zero_range != nullptr) zero_range[c] = is_zero_range(lo[c], hi[c]) ? 1 : 0;
  }
};

// MinMax, UpdateExtremes and QparamsOfRanges of n values; on a GPU one
// launch.
struct ObserveValues {
  RangeRule rule;
  RangeQuantizer to;
  std::int64_t n;
  const float* x;
};

// Latents begin where scale and zero point are: initial = latent = scale and, where offset is not
// null, offset = the real value of the lowest code.
struct BeginLatents {
  std::int64_t n;
  CodeRange range;
  const float* scale;
  const std::int32_t* zero_point;
  float *initial, *latent, *offset;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    initial[c] = latent[c] = scale[c];
    if (offset != nullptr) offset[c] = offset_of(zero_point[c], scale[c], range);
  }
};

// scale = scale_of_latent(latent, initial, floor) and, where offset is not null, zero_point = the
// code that comes nearest to making the lowest code stand for it. A latent that is not finite
// leaves them and is counted. pass_scale and pass_zero_point (may be null) become copies for the
// pass.
struct FollowLatents {
  static constexpr std::int64_t kGrain = 1024;
  std::int64_t n;
  CodeRange range;
  const float *latent, *initial, *floor, *offset;
  float* scale;
  std::int32_t* zero_point;
  std::int64_t* non_finite;
  float* pass_scale;
  std::int32_t* pass_zero_point;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    QParams<float> qparams{scale[c], zero_point == nullptr ? 0 : zero_point[c]};
    const float* own_offset = offset == nullptr ? nullptr : offset + c;
    const bool all_finite =
        follow_latents(latent[c], initial[c], floor[c], own_offset, range, qparams);
    scale[c] = qparams.scale;
    if (offset != nullptr) zero_point[c] = qparams.zero_point;
    if (pass_scale != nullptr) pass_scale[c] = qparams.scale;
    if (pass_zero_point != nullptr) pass_zero_point[c] = qparams.zero_point;
    count(all_finite ? 0 : 1, non_finite);
  }
};

// From the gradients of scales and zero points to those of their latents (latent_gradients() of
// formulas.h), in place. zero_point, offset and grad_offset are null where only scales learn.
struct ChainLatentGradients {
  std::int64_t n;
  CodeRange range;
  const float *scale, *initial;
  const std::int32_t* zero_point;
  const float* offset;
  float *grad_scale, *grad_offset;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    if (offset == nullptr) {
      grad_scale[c] *= latent_slope(scale[c], initial[c]);
      return;
    }
    const LatentGradients chained = latent_gradients(range, scale[c], initial[c], zero_point[c],
                                                     offset[c], {grad_scale[c], grad_offset[c]});
    grad_scale[c] = chained.scale;
    grad_offset[c] = chained.offset;
  }
};

// Moves a range to codes of another width: scale *= ratio of the steps, kept within its limits,
// and, where affine, the zero point in the same place.
struct RescaleQparams {
  std::int64_t n;
  CodeRange from, to;
  bool symmetric;
  float* scale;
  std::int32_t* zero_point;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t c) const {
    const auto moved = rescaled_qparams({scale[c], zero_point[c]}, from, to, symmetric);
    scale[c] = moved.scale;
    zero_point[c] = moved.zero_point;
  }
};

using QuantizerStateKernels =
    JoinedKernels<KernelList<UpdateExtremes, GatherExtremes, GatheredExtremes, ObserveValues,
                             BeginLatents, FollowLatents, ChainLatentGradients, RescaleQparams>,
                  ForFloats<QparamsOfRanges>>;

}  // namespace steelyard::kernels
