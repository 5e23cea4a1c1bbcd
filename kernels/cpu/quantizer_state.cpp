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

void begin_latents(std::int64_t channels, CodeRange range, const float* scale,
                   const std::int32_t* zero_point, float* initial, float* latent, float* offset) {
  for (std::int64_t c = 0; c < channels; ++c) {
    initial[c] = latent[c] = scale[c];
    if (offset != nullptr) offset[c] = offset_of(zero_point[c], scale[c], range);
  }
}

void follow_latents(std::int64_t channels, CodeRange range, const float* latent,
                    const float* initial, const float* floor, const float* offset, float* scale,
                    std::int32_t* zero_point, std::int64_t* non_finite, float* step_scale,
                    std::int32_t* step_zero_point) {
  for (std::int64_t c = 0; c < channels; ++c) {
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
}

void chain_latent_gradients(std::int64_t channels, CodeRange range, const float* scale,
                            const float* initial, const std::int32_t* zero_point,
                            const float* offset, float* grad_scale, float* grad_offset) {
  for (std::int64_t c = 0; c < channels; ++c) {
    chain_latent_gradient(c, range, scale, initial, zero_point, offset, grad_scale, grad_offset);
  }
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
