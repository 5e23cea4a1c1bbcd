#include "kernels/weight_codes.h"

#include <algorithm>
#include <vector>

#include "kernels/fake_quantize.h"
#include "kernels/quantizer_rules.h"
#include "kernels/reduce.h"

namespace steelyard::kernels {
namespace {

void follow_rows(const WeightQuantization& op, const ChannelLayout& layout, const float* weight,
                 const WeightQuantizer& q) {
  const auto scales = static_cast<std::size_t>(op.scales);
  std::vector<float> lo(scales), hi(scales);
  std::vector<std::int64_t> skipped(scales);
  min_max(layout, weight, lo.data(), hi.data(), skipped.data());
  for (std::size_t c = 0; c < scales; ++c) {
    std::int64_t* steps = q.steps == nullptr ? nullptr : q.steps + c;
    q.scale[c] = follow_extremes(op.rule, q.lo[c], q.hi[c], steps, lo[c], hi[c]).scale;
    q.zero_range[c] = is_zero_range(q.lo[c], q.hi[c]) ? 1 : 0;
    *q.non_finite += skipped[c];
  }
}

}  // namespace

void quantize_weights(const WeightQuantization& op, const float* weight, const WeightQuantizer& q,
                      const BiasBehind& behind, const WeightCodeArrays& to) {
  const std::int64_t size = op.rows * op.row_size;
  const ChannelLayout layout{1, op.scales, op.scales == 0 ? 0 : size / op.scales};
  if (op.source == ScaleSource::kExtremes) follow_rows(op, layout, weight, q);
  if (op.fits_bias) {
    fit_weight_scales(op.rows, behind.deployed, behind.x_scale, op.scales, q.zero_range, q.scale,
                      q.floor);
  }
  if (op.source == ScaleSource::kLatent) {
    follow_latents(op.scales, op.rule.codes, q.latent, q.initial, q.floor, nullptr, q.scale,
                   nullptr, q.non_finite, nullptr, nullptr);
  }
  std::copy_n(q.scale, op.scales, to.step_scale);
  quantize(layout, op.rule.codes, weight, q.scale, nullptr, to.codes, to.mask, q.non_finite);
  if (behind.x_scale == nullptr) return;
  quantize_biases(op.rows, behind.bias, behind.x_scale, op.scales, q.scale, to.product_scale,
                  to.bias_codes, q.non_finite);
}

}  // namespace steelyard::kernels
