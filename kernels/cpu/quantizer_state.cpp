#include "kernels/quantizer_state.h"

#include <algorithm>
#include <cmath>

#include "kernels/quantizer_rules.h"
#include "kernels/reduce.h"

namespace steelyard::kernels {
namespace {

void count(bool met, std::int64_t* counter) {
  if (met && counter != nullptr) ++*counter;
}

}  // namespace

void update_extremes(std::int64_t channels, const float* step_lo, const float* step_hi, float* lo,
                     float* hi) {
  for (std::int64_t c = 0; c < channels; ++c) extend_range(lo[c], hi[c], step_lo[c], step_hi[c]);
}

void update_average_extremes(std::int64_t channels, double constant, const float* step_lo,
                             const float* step_hi, float* lo, float* hi, std::int64_t* steps) {
  for (std::int64_t c = 0; c < channels; ++c) {
    average_range(lo[c], hi[c], steps[c], step_lo[c], step_hi[c], constant);
  }
}

template <typename T>
void qparams_of_ranges(std::int64_t channels, CodeRange range, bool symmetric, const T* lo,
                       const T* hi, float* scale, std::int32_t* zero_point,
                       std::uint8_t* zero_range) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto chosen = qparams_of_range<float>(lo[c], hi[c], range, symmetric);
    scale[c] = chosen.scale;
    zero_point[c] = chosen.zero_point;
    if (zero_range != nullptr) zero_range[c] = is_zero_range(lo[c], hi[c]) ? 1 : 0;
  }
}

void observe_values(const RangeRule& rule, const RangeQuantizer& to, std::int64_t n,
                    const float* x) {
  float lo, hi;
  std::int64_t skipped;
  min_max(ChannelLayout::per_tensor(n), x, &lo, &hi, &skipped);
  *to.non_finite += skipped;
  follow_extremes(rule, to, lo, hi);
}

void fit_weight_scales(std::int64_t outputs, const float* bias, const float* x_scale,
                       std::int64_t scales, const std::uint8_t* zero_range, float* scale,
                       float* floor) {
  const std::int64_t sharers = scales == 0 ? 0 : outputs / scales;
  for (std::int64_t c = 0; c < scales; ++c) {
    float largest = 0;
    for (std::int64_t o = c * sharers; bias != nullptr && o < (c + 1) * sharers; ++o) {
      largest = larger_magnitude(largest, bias[o]);
    }
    const FittedScale fitted = fit_weight_scale(scale[c], zero_range[c] != 0, largest, *x_scale);
    scale[c] = fitted.scale;
    if (floor != nullptr) floor[c] = fitted.floor;
  }
}

void quantize_biases(std::int64_t outputs, const float* bias, const float* x_scale,
                     std::int64_t scales, const float* weight_scale, float* product_scale,
                     std::int32_t* codes, std::int64_t* non_finite) {
  for (std::int64_t o = 0; o < outputs; ++o) {
    product_scale[o] = *x_scale * weight_scale[scales > 1 ? o : 0];
    if (bias == nullptr) continue;
    const bool finite = is_finite(bias[o]);
    codes[o] = finite ? quantize_bias(bias[o], product_scale[o]) : 0;
    count(!finite, non_finite);
  }
}

void follow_latents(std::int64_t channels, CodeRange range, const float* latent,
                    const float* initial, const float* floor, const float* zero_latent,
                    float* scale, std::int32_t* zero_point, std::int64_t* non_finite,
                    float* step_scale, std::int32_t* step_zero_point) {
  for (std::int64_t c = 0; c < channels; ++c) {
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
}

void chain_latent_gradient(std::int64_t channels, const float* scale, const float* initial,
                           float* grad) {
  for (std::int64_t c = 0; c < channels; ++c) grad[c] *= latent_slope(scale[c], initial[c]);
}

void rescale_qparams(std::int64_t channels, CodeRange from, CodeRange to, bool symmetric,
                     float* scale, std::int32_t* zero_point) {
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto moved = rescaled_qparams({scale[c], zero_point[c]}, from, to, symmetric);
    scale[c] = moved.scale;
    zero_point[c] = moved.zero_point;
  }
}

template void qparams_of_ranges(std::int64_t, CodeRange, bool, const float*, const float*, float*,
                                std::int32_t*, std::uint8_t*);
template void qparams_of_ranges(std::int64_t, CodeRange, bool, const double*, const double*, float*,
                                std::int32_t*, std::uint8_t*);

}  // namespace steelyard::kernels
