#include "steelyard/kernels/weight_codes/weight_codes.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/integer_product/integer_product.h"
#include "steelyard/kernels/quantizer_state/formulas.h"
#include "steelyard/kernels/reduce/reduce.h"

namespace steelyard::kernels {

// Kernels of other families, emitted in their files.
extern template void run(const FollowLatents&);
extern template void run(const MinMax<float>&);
extern template void run(const Quantize<float, std::int8_t>&);

namespace {

void follow_rows(const WeightQuantization& op, const ChannelLayout& layout, const float* weight,
                 const WeightQuantizer& q) {
  const auto scales = static_cast<std::size_t>(op.scales);
  std::vector<float> lo(scales), hi(scales);
  std::vector<std::int64_t> skipped(scales);
  run(MinMax<float>{layout, weight, lo.data(), hi.data(), skipped.data()});
  for (std::size_t c = 0; c < scales; ++c) {
    std::int64_t* steps = q.steps == nullptr ? nullptr : q.steps + c;
    const auto chosen = follow_extremes(op.rule, q.lo[c], q.hi[c], steps, lo[c], hi[c]);
    q.scale[c] = chosen.scale;
    if (q.zero_point != nullptr) q.zero_point[c] = chosen.zero_point;
    q.zero_range[c] = is_zero_range(q.lo[c], q.hi[c]) ? 1 : 0;
    *q.non_finite += skipped[c];
  }
}

// Adapts the scales, and the smallest allowed scales, to the deployed biases.
void fit_scales(const WeightQuantization& op, const BiasBehind& behind,
                const std::uint8_t* zero_range, float* scale, float* floor) {
  const std::int64_t sharers = op.scales == 0 ? 0 : op.rows / op.scales;
  const std::int64_t largest_sum =
      op.row_size * largest_product(op.x_codes, op.rule.codes, op.rule.symmetric);
  for (std::int64_t c = 0; c < op.scales; ++c) {
    float largest = 0;
    for (std::int64_t o = c * sharers; behind.deployed != nullptr && o < (c + 1) * sharers; ++o) {
      largest = larger_magnitude(largest, behind.deployed[o]);
    }
    const FittedScale fitted =
        op.fit == BiasFit::kFollows
            ? fit_weight_scale(scale[c], zero_range[c] != 0, largest, *behind.x_scale)
            : keep_room({scale[c], floor[c]}, largest, *behind.x_scale, largest_sum);
    scale[c] = fitted.scale;
    floor[c] = fitted.floor;
  }
}

// The scales and zero points of this step.
void follow_scales(const WeightQuantization& op, const WeightQuantizer& q, const BiasBehind& behind,
                   float* scale, std::int32_t* zero_point) {
  std::copy_n(q.scale, op.scales, scale);
  if (zero_point != nullptr) std::copy_n(q.zero_point, op.scales, zero_point);
  std::vector<float> floor(static_cast<std::size_t>(op.scales), 0.0F);
  if (q.floor != nullptr) std::copy_n(q.floor, op.scales, floor.begin());
  if (op.fit == BiasFit::kFollows) fit_scales(op, behind, q.zero_range, scale, floor.data());
  if (op.source == ScaleSource::kLatent) {
    run(FollowLatents{op.scales, op.rule.codes, q.latent, q.initial, floor.data(), q.offset, scale,
                      zero_point, q.non_finite, nullptr, nullptr});
  }
  if (op.fit == BiasFit::kKeepsRoom) fit_scales(op, behind, q.zero_range, scale, floor.data());
  if (!op.keeps) return;
  std::copy_n(scale, op.scales, q.scale);
  if (zero_point != nullptr) std::copy_n(zero_point, op.scales, q.zero_point);
  if (q.floor != nullptr) std::copy(floor.begin(), floor.end(), q.floor);
}

void quantize_biases(const WeightQuantization& op, const WeightQuantizer& q,
                     const BiasBehind& behind, const WeightCodeArrays& to) {
  for (std::int64_t row = 0; row < op.rows; ++row) {
    to.product_scale[row] = *behind.x_scale * to.step_scale[op.scales > 1 ? row : 0];
  }
  if (behind.bias == nullptr) return;
  const std::int64_t most = largest_product(op.x_codes, op.rule.codes, op.rule.symmetric);
  const bool adds_up = !sums_leave_room(op.row_size, most);
  const auto largest_code =
      static_cast<std::int64_t>(largest_operand(op.x_codes, *behind.x_zero_point));
  for (std::int64_t row = 0; row < op.rows; ++row) {
    const std::int8_t* codes = to.codes + row * op.row_size;
    const std::int32_t zero =
        to.step_zero_point == nullptr ? 0 : to.step_zero_point[op.scales > 1 ? row : 0];
    const std::int64_t sum =
        adds_up ? largest_code * std::accumulate(codes, codes + op.row_size, std::int64_t{0},
                                                 [zero](std::int64_t all, std::int8_t code) {
                                                   return all + std::abs(code - zero);
                                                 })
                : most * op.row_size;
    const std::int32_t room = bias_room(sum);
    const BiasCode bias = bias_code(behind.bias[row], to.product_scale[row], room);
    to.bias_codes[row] = bias.code;
    *q.non_finite += bias.finite ? 0 : 1;
    if (bias.fits) continue;
    ++*q.too_large;
    q.too_large_bias[2 * row] = behind.bias[row];
    q.too_large_bias[2 * row + 1] = dequantize_sum(room, to.product_scale[row]);
  }
}

}  // namespace

static void compute(const QuantizeWeights& k) {
  const WeightQuantization& op = k.op;
  const WeightCodeArrays& to = k.to;
  const std::int64_t size = op.rows * op.row_size;
  const ChannelLayout layout{1, op.scales, op.scales == 0 ? 0 : size / op.scales};
  const bool observes = op.source == ScaleSource::kExtremes;
  if (observes) follow_rows(op, layout, k.weight, k.quantizer);
  follow_scales(op, k.quantizer, k.behind, to.step_scale, to.step_zero_point);
  run(Quantize<float, std::int8_t>{
      .layout = layout,
      .range = op.rule.codes,
      .x = k.weight,
      .scale = to.step_scale,
      .zero_point = to.step_zero_point,
      .codes = to.codes,
      .mask = to.mask,
      .nan_count = observes || op.counted ? nullptr : k.quantizer.non_finite});
  if (k.behind.x_scale != nullptr) quantize_biases(op, k.quantizer, k.behind, to);
}

template struct CpuKernels<WeightCodesKernels>;

}  // namespace steelyard::kernels
