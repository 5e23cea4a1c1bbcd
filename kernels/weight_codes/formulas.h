// What a step computes for one row of weights, host and device.
#pragma once

#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/weight_codes/weight_codes.h"

namespace steelyard::kernels {

// The scale and zero point of a row in this step, and what the quantizer keeps; `step` are the
// row's extremes where scales come from them, `largest_bias` is that of the rows with its scale.
// One thread `keeps` for every scale. Other threads may read a given scale before or after it was
// raised; they compute the same from both.
STEELYARD_HOST_DEVICE inline QParams<float> follow_row(const QuantizeWeights& k, std::int64_t row,
                                                       bool keeps, const FiniteExtremes& step,
                                                       float largest_bias,
                                                       std::int64_t largest_sum) {
  const WeightQuantization& op = k.op;
  const WeightQuantizerArrays& q = k.quantizer;
  const bool affine = q.zero_point != nullptr;
  const std::int64_t c = op.scales == 1 ? 0 : row;
  QParams<float> qparams{q.scale[c], affine ? q.zero_point[c] : 0};
  if (op.source == ScaleSource::kExtremes) {
    std::int64_t* steps = q.steps == nullptr ? nullptr : q.steps + c;
    qparams = follow_extremes(op.rule, q.lo[c], q.hi[c], steps, step.lo, step.hi);
    q.scale[c] = qparams.scale;
    if (affine) q.zero_point[c] = qparams.zero_point;
    q.zero_range[c] = is_zero_range(q.lo[c], q.hi[c]) ? 1 : 0;
    count(step.skipped, q.non_finite);
  }
  FittedScale fitted{qparams.scale, q.floor == nullptr ? 0 : q.floor[c]};
  if (op.fit == BiasFit::kFollows) {
    fitted = fit_weight_scale(qparams.scale, q.zero_range[c] != 0, largest_bias, *k.bias.x_scale);
  }
  if (op.source == ScaleSource::kLatent) {
    qparams.scale = fitted.scale;
    const float* offset = q.offset == nullptr ? nullptr : q.offset + c;
    const bool all_finite =
        follow_latents(q.latent[c], q.initial[c], fitted.floor, offset, op.rule.codes, qparams);
    if (keeps) count(all_finite ? 0 : 1, q.non_finite);
    fitted.scale = qparams.scale;
  }
  if (op.fit == BiasFit::kKeepsRoom) {
    fitted = keep_room(fitted, largest_bias, *k.bias.x_scale, largest_sum);
  }
  if (keeps && op.keeps) {
    const bool changes = op.source != ScaleSource::kGiven || op.fit != BiasFit::kNothing;
    if (changes) q.scale[c] = fitted.scale;
    if (affine && op.source != ScaleSource::kGiven) q.zero_point[c] = qparams.zero_point;
    if (q.floor != nullptr) q.floor[c] = fitted.floor;
  }
  return {fitted.scale, qparams.zero_point};
}

// The product scale of a row and, where there is a bias, its code, with sums of products that are
// no larger than `largest_sum`.
STEELYARD_HOST_DEVICE inline void quantize_bias_of_row(const QuantizeWeights& k, std::int64_t row,
                                                       float scale, std::int64_t largest_sum) {
  const WeightQuantizerArrays& q = k.quantizer;
  const float product = *k.bias.x_scale * scale;
  k.to.product_scale[row] = product;
  if (k.bias.values == nullptr) return;
  const std::int32_t room = bias_room(largest_sum);
  const BiasCode bias = bias_code(k.bias.values[row], product, room);
  k.to.bias_codes[row] = bias.code;
  count(bias.finite ? 0 : 1, q.non_finite);
  if (bias.fits) return;
  count(1, q.too_large);
  q.too_large_bias[2 * row] = k.bias.values[row];
  q.too_large_bias[2 * row + 1] = dequantize_sum(room, product);
}

// The largest possible sum of a row's products. `adds_up` says that there are so many products that
// a bias may lack room: then it is computed from `magnitudes`, the sum of the magnitudes of the
// row's operands.
struct LargestSum {
  std::int64_t most;  // the largest product of any codes
  bool adds_up;

  explicit LargestSum(const QuantizeWeights& k)
      : most(largest_product(k.op.x_codes, k.op.rule.codes, k.op.rule.symmetric)),
        adds_up(k.bias.values != nullptr && !sums_leave_room(k.op.row_size, most)) {}
  // The largest sum of any codes.
  STEELYARD_HOST_DEVICE std::int64_t of_any(const QuantizeWeights& k) const {
    return most * k.op.row_size;
  }
  STEELYARD_HOST_DEVICE std::int64_t of(const QuantizeWeights& k, std::int64_t magnitudes) const {
    if (!adds_up) return of_any(k);
    return static_cast<std::int64_t>(largest_operand(k.op.x_codes, *k.bias.x_zero_point)) *
           magnitudes;
  }
};

}  // namespace steelyard::kernels
