// RequantizeAccumulators on the CPU, a part of the elements at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/requantize/requantize.h"

namespace steelyard::kernels {

// Bias and product scale of each accumulator of a tile of rows.
struct TiledChannels {
  TiledChannels(const Requantize& op, const std::int32_t* bias_codes, const float* scales)
      : plan(RunPlan::tiles_of_rows(op.rows, op.channels)),
        bias(static_cast<std::size_t>(plan.tile()), 0),
        product_scale(tile_values<float>(plan, scales)) {
    if (bias_codes != nullptr) bias = tile_values<std::int32_t>(plan, bias_codes);
  }

  RunPlan plan;
  std::vector<std::int32_t> bias;
  std::vector<float> product_scale;
};

// The values of its channel for each accumulator of a run.
struct OfChannels {
  const std::int32_t* bias;
  const float *product_scale, *multiplier;
};

template <typename Code>
void requantize_run(std::int64_t n, const std::int32_t* acc, OfChannels of, OutputCodes out,
                    Code* codes, std::uint8_t* passes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t sum = acc[i] + of.bias[i];
    const float code = requantized_code(sum, of.multiplier[i], out.full.zero_point);
    codes[i] = static_cast<Code>(out.code(code));
    passes[i] = out.passes(code, dequantize_sum(sum, of.product_scale[i])) ? 1 : 0;
  }
}

template <typename Code>
class Requantizer {
 public:
  explicit Requantizer(const RequantizeAccumulators<Code>& k)
      : tiled_(k.op, k.bias, k.product_scale),
        output_(output_codes(k.op.activation, *k.scale, *k.zero_point, k.range)),
        multiplier_(tiled_.product_scale),
        codes_(k.codes),
        mask_(k.mask) {
    for (float& value : multiplier_) value = requantize_multiplier(value, *k.scale);
  }

  // Codes and mask of the elements [begin, end), whose accumulators begin at `acc`. Parts begin at
  // multiples of 8.
  void operator()(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
    alignas(64) std::uint8_t passes[kBlockElements];
    for (; begin < end; begin += kBlockElements, acc += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, end - begin);
      tiled_.plan.for_each(begin, begin + count,
                           [&](std::int64_t first, std::int64_t length, std::int64_t slot) {
                             const std::int64_t at = first - begin;
                             requantize_run(length, acc + at,
                                            {.bias = tiled_.bias.data() + slot,
                                             .product_scale = tiled_.product_scale.data() + slot,
                                             .multiplier = multiplier_.data() + slot},
                                            output_, codes_ + first, passes + at);
                           });
      if (mask_ != nullptr) pack_flags(passes, count, mask_ + begin / 8);
    }
  }

 private:
  TiledChannels tiled_;
  OutputCodes output_;
  std::vector<float> multiplier_;
  Code* codes_;
  std::uint8_t* mask_;
};

template <typename Code>
void requantize_all(const RequantizeAccumulators<Code>& k) {
  const Requantizer<Code> requantize(k);
  parallel_blocks(k.op.rows * k.op.channels, [&](std::int64_t begin, std::int64_t end) {
    requantize(begin, end, k.acc + begin);
  });
}

}  // namespace steelyard::kernels
