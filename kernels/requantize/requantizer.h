// RequantizeAccumulators on the CPU, a part of the elements at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/byte_lanes.h"
#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/requantize/requantize.h"
#include "steelyard/kernels/requantize/sixteen_codes.h"

namespace steelyard::kernels {

// Bias and product scale of each accumulator of a tile of rows; the scales may be null.
struct TiledChannels {
  TiledChannels(const Requantize& op, const std::int32_t* bias_codes, const float* scales)
      : plan(RunPlan::tiles_of_rows(op.rows, op.channels)),
        bias(static_cast<std::size_t>(plan.tile()), 0) {
    if (scales != nullptr) product_scale = tile_values<float>(plan, scales);
    if (bias_codes != nullptr) bias = tile_values<std::int32_t>(plan, bias_codes);
  }

  RunPlan plan;
  KeptVector<std::int32_t> bias;
  KeptVector<float> product_scale;
};

// The values of its channel for each accumulator of a run.
struct OfChannels {
  const std::int32_t* bias;
  const float *product_scale, *multiplier;
};

inline void requantize_run(std::int64_t n, const std::int32_t* acc, OfChannels of, OutputCodes out,
                           ByteLane* codes, ByteLane* passes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t sum = acc[i] + of.bias[i];
    const float code = requantized_code(sum, of.multiplier[i], out.full.zero_point);
    codes[i] = static_cast<ByteLane>(out.code(code));
    passes[i] = out.passes(code, dequantize_sum(sum, of.product_scale[i])) ? 1 : 0;
  }
}

// The codes alone, without a mask.
inline void codes_of_run(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
                         const float* multiplier, OutputCodes out, ByteLane* codes) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const float code = requantized_code(acc[i] + bias[i], multiplier[i], out.full.zero_point);
    codes[i] = static_cast<ByteLane>(out.code(code));
  }
}

// requantize_run() where mask_follows_from_sums().
inline void requantize_by_sums(std::int64_t n, const std::int32_t* acc, OfChannels of,
                               OutputCodes out, ByteLane* codes, ByteLane* passes) {
  const std::int32_t least = least_linear_sum(out);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t sum = acc[i] + of.bias[i];
    const float code = requantized_code(sum, of.multiplier[i], out.full.zero_point);
    const float clamped = clamp_code(code, out.clamped);
    codes[i] = static_cast<ByteLane>(static_cast<std::int32_t>(clamped));
    const bool inside = is_unchanged(code, clamped);
    const bool linear = sum >= least;
    passes[i] = (inside & linear) ? 1 : 0;
  }
}

// Nothing reads masks in a program that only runs models.
#ifdef STEELYARD_WITHOUT_MASKS
inline constexpr bool kHasMasks = false;
#else
inline constexpr bool kHasMasks = true;
#endif

template <typename Code>
class Requantizer {
 public:
  explicit Requantizer(const RequantizeAccumulators<Code>& k)
      : tiled_(k.op, k.bias, k.mask == nullptr ? nullptr : k.product_scale),
        output_(output_codes(k.op.activation, *k.scale, *k.zero_point, k.range)),
        codes_(k.codes),
        mask_(k.mask) {
    KeptVector<float> multipliers(static_cast<std::size_t>(k.op.channels), 0.0F);
    for (std::int64_t c = 0; c < k.op.channels; ++c) {
      multipliers[c] = requantize_multiplier(k.product_scale[c], *k.scale);
    }
    multiplier_ = tile_values<float>(tiled_.plan, multipliers.data());
    for (std::int64_t c = 0; c < k.op.channels; ++c) {
      by_sums_ = by_sums_ &&
                 (k.mask == nullptr ? codes_are_finite(multipliers[c])
                                    : mask_follows_from_sums(k.op.activation, k.product_scale[c],
                                                             multipliers[c]));
      fit_ = fit_ && products_fit(multipliers[c]);
    }
  }

  // Codes and mask of the elements [begin, end), whose accumulators begin at `acc`. Parts begin at
  // multiples of 8 where there is a mask.
  void operator()(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
#ifdef __AVX2__
    if (by_sums_ && !is_masked()) return write_vectors(begin, end, acc);
    if constexpr (kHasMasks) {
      if (by_sums_ && tiled_.plan.tile() % 8 == 0) {
        return write_sixteens<SixteenPasses<Code>>(begin, end, acc);
      }
    }
#endif
    if constexpr (kHasMasks) {
      if (is_masked()) return write_both(begin, end, acc);
    }
    write_codes(begin, end, acc);
  }

 private:
  bool is_masked() const { return kHasMasks && mask_ != nullptr; }

  void write_codes(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
    tiled_.plan.for_each(
        begin, end, [&](std::int64_t first, std::int64_t length, std::int64_t slot) {
#ifdef __aarch64__
          if (by_sums_) {
            const std::int64_t done =
                codes_of_vectors(length, acc + (first - begin), tiled_.bias.data() + slot,
                                 multiplier_.data() + slot, output_, codes_ + first);
            first += done;
            length -= done;
            slot += done;
          }
#endif
          const std::int32_t* const sums = acc + (first - begin);
          write_bytes<1>(length, {reinterpret_cast<std::uint8_t*>(codes_ + first)},
                         [&](std::int64_t from, std::int64_t some, const auto& lanes) {
                           codes_of_run(some, sums + from, tiled_.bias.data() + slot + from,
                                        multiplier_.data() + slot + from, output_, lanes[0]);
                         });
        });
  }

  void write_both(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
    const auto run = by_sums_ ? requantize_by_sums : requantize_run;
    alignas(64) std::uint8_t passes[kBlockElements];
    for (; begin < end; begin += kBlockElements, acc += kBlockElements) {
      const std::int64_t count = std::min(kBlockElements, end - begin);
      tiled_.plan.for_each(
          begin, begin + count, [&](std::int64_t first, std::int64_t length, std::int64_t slot) {
            const std::int64_t at = first - begin;
            auto* const codes = reinterpret_cast<std::uint8_t*>(codes_ + first);
            write_bytes<2>(length, {codes, passes + at},
                           [&](std::int64_t from, std::int64_t some, const auto& lanes) {
                             run(some, acc + at + from, of_channels(slot + from), output_, lanes[0],
                                 lanes[1]);
                           });
          });
      pack_flags(passes, count, mask_ + begin / 8);
    }
  }

  OfChannels of_channels(std::int64_t slot) const {
    return {.bias = tiled_.bias.data() + slot,
            .product_scale = tiled_.product_scale.data() + slot,
            .multiplier = multiplier_.data() + slot};
  }

#ifdef __AVX2__
  void write_vectors(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
    tiled_.plan.for_each(
        begin, end, [&](std::int64_t first, std::int64_t length, std::int64_t slot) {
          const std::int32_t* const sums = acc + (first - begin);
          const std::int32_t* const bias = tiled_.bias.data() + slot;
          const float* const multiplier = multiplier_.data() + slot;
          const std::int64_t done =
              fit_ ? codes_of_vectors(length, sums, bias, multiplier, output_, codes_ + first) : 0;
          requantize_sixteens(length - done, sums + done, bias + done, multiplier + done,
                              SixteenCodes<Code>(output_), codes_ + first + done, nullptr);
        });
  }

  // Where every run begins with a byte of the mask, if there is one.
  template <class Sixteen>
  void write_sixteens(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
    tiled_.plan.for_each(begin, end,
                         [&, sixteen = Sixteen(output_)](std::int64_t first, std::int64_t length,
                                                         std::int64_t slot) {
                           requantize_sixteens(length, acc + (first - begin),
                                               tiled_.bias.data() + slot, multiplier_.data() + slot,
                                               sixteen, codes_ + first,
                                               mask_ == nullptr ? nullptr : mask_ + first / 8);
                         });
  }
#endif

  TiledChannels tiled_;
  OutputCodes output_;
  bool by_sums_ = true, fit_ = true;
  KeptVector<float> multiplier_;
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
