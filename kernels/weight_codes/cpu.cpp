#include <cstdlib>
#include <numeric>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/fake_quantize/fake_quantize.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "steelyard/kernels/weight_codes/formulas.h"

namespace steelyard::kernels {

// Kernels of other families, emitted in their files.
extern template void run(const MinMax<float>&);
extern template void run(const Quantize<float, std::int8_t>&);

namespace {

// The scales and zero points of this step.
void follow_rows(const QuantizeWeights& k, const ChannelLayout& layout, std::int64_t largest_sum) {
  const WeightQuantization& op = k.op;
  const auto scales = static_cast<std::size_t>(op.scales);
  KeptVector<float> lo, hi;
  KeptVector<std::int64_t> skipped;
  lo.assign(scales, 0);
  hi.assign(scales, 0);
  skipped.assign(scales, 0);
  if (op.source == ScaleSource::kExtremes) {
    run(MinMax<float>{layout, k.weight, lo.data(), hi.data(), skipped.data()});
  }
  const bool fits = op.fit != BiasFit::kNothing && k.bias.deployed != nullptr;
  for (std::int64_t c = 0; c < op.scales; ++c) {
    const std::int64_t sharers = op.rows / op.scales;
    float largest_bias = 0;
    for (std::int64_t o = c * sharers; fits && o < (c + 1) * sharers; ++o) {
      largest_bias = larger_magnitude(largest_bias, k.bias.deployed[o]);
    }
    const auto qparams =
        follow_row(k, c, /*keeps=*/true, {lo[c], hi[c], skipped[c]}, largest_bias, largest_sum);
    k.to.pass_scale[c] = qparams.scale;
    if (k.to.pass_zero_point != nullptr) k.to.pass_zero_point[c] = qparams.zero_point;
  }
}

// Counts in a pass of its own over all weights, which training does not have: there only NaN are
// counted, while codes are made.
void count_non_finite(const QuantizeWeights& k, std::int64_t size) {
  float lo = 0;
  float hi = 0;
  std::int64_t non_finite = 0;
  run(MinMax<float>{ChannelLayout::per_tensor(size), k.weight, &lo, &hi, &non_finite});
  count(non_finite, k.quantizer.non_finite);
}

void quantize_biases(const QuantizeWeights& k, const LargestSum& largest_sum) {
  for (std::int64_t row = 0; row < k.op.rows; ++row) {
    const std::int64_t c = k.op.scales > 1 ? row : 0;
    const std::int32_t zero = k.to.pass_zero_point == nullptr ? 0 : k.to.pass_zero_point[c];
    const std::int8_t* codes = k.to.codes + row * k.op.row_size;
    std::int64_t magnitudes = 0;
    for (std::int64_t i = 0; largest_sum.adds_up && i < k.op.row_size; ++i) {
      magnitudes += std::abs(codes[i] - zero);
    }
    quantize_bias_of_row(k, row, k.to.pass_scale[c], largest_sum.of(k, magnitudes));
  }
}

void order_codes(const QuantizeWeights& k) {
  const std::int64_t taps = k.op.taps, size = k.op.row_size, channels = size / taps;
  for (std::int64_t row = 0; row < k.op.rows; ++row) {
    const std::int8_t* codes = k.to.codes + row * size;
    k.to.sums[row] = std::accumulate(codes, codes + size, std::int32_t{0});
    for (std::int64_t i = 0; k.to.ordered != nullptr && i < size; ++i) {
      k.to.ordered[row * size + i] = codes[i % channels * taps + i / channels];
    }
  }
}

}  // namespace

static void compute(const QuantizeWeights& k) {
  const WeightQuantization& op = k.op;
  const std::int64_t size = op.rows * op.row_size;
  const ChannelLayout layout{1, op.scales, op.scales == 0 ? 0 : size / op.scales};
  const LargestSum largest_sum(k);
  follow_rows(k, layout, largest_sum.of_any(k));
  bool counted = op.source == ScaleSource::kExtremes || op.counted;
  if (op.evaluates && !counted) {
    count_non_finite(k, size);
    counted = true;
  }
  run(Quantize<float, std::int8_t>{.layout = layout,
                                   .range = op.rule.codes,
                                   .x = k.weight,
                                   .scale = k.to.pass_scale,
                                   .zero_point = k.to.pass_zero_point,
                                   .codes = k.to.codes,
                                   .mask = k.to.mask,
                                   .nan_count = counted ? nullptr : k.quantizer.non_finite});
  if (k.to.sums != nullptr) order_codes(k);
  if (k.bias.x_scale != nullptr) quantize_biases(k, largest_sum);
}

template struct CpuKernels<WeightCodesKernels>;

}  // namespace steelyard::kernels
