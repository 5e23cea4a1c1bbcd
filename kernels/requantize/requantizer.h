// RequantizeAccumulators on the CPU, a part of the elements at a time.
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/byte_lanes.h"
#include "steelyard/kernels/cpu/each_index.h"
#include "steelyard/kernels/cpu/mask.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/requantize/requantize.h"

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
  std::vector<std::int32_t> bias;
  std::vector<float> product_scale;
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

// Less than the largest float by a factor of 2^32, so that products of sums are finite.
inline constexpr float kMostFactor = 0x1p96F;
inline bool codes_are_finite(float multiplier) {
  return multiplier >= 0 && multiplier < kMostFactor;
}
// Whether the mask follows from sums and codes alone: every product is finite, and positive where
// its sum is. Then a code that its range did not change is inside, and a positive sum is linear.
inline bool mask_follows_from_sums(Activation activation, float product_scale, float multiplier) {
  return activation != Activation::kRelu6 && product_scale >= std::numeric_limits<float>::min() &&
         product_scale < kMostFactor && codes_are_finite(multiplier);
}
// The least sum that an activation other than relu6 passes.
inline std::int32_t least_linear_sum(const OutputCodes& out) {
  return out.linear.lower < 0 ? std::numeric_limits<std::int32_t>::min() : 1;
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

#ifdef __AVX512BW__
// Sixteen accumulators that `some` chooses, their biases added and scaled.
struct SixteenSums {
  SixteenSums(__mmask16 some, const std::int32_t* acc, const std::int32_t* bias,
              const float* multiplier)
      : sum(_mm512_add_epi32(_mm512_maskz_loadu_epi32(some, acc),
                             _mm512_maskz_loadu_epi32(some, bias))),
        scaled(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(some, multiplier))) {}

  __m512i sum;
  __m512 scaled;
};

// Writes the codes of sixteen accumulators, where codes_are_finite(); of no mask, it returns 0.
// Clamped first: the ends are integers, which rounding does not cross.
class SixteenCodes {
 public:
  explicit SixteenCodes(const OutputCodes& out)
      : zero_point_(_mm512_set1_epi32(static_cast<std::int32_t>(out.full.zero_point))),
        lowest_(_mm512_set1_ps(out.clamped.qmin - out.full.zero_point)),
        highest_(_mm512_set1_ps(out.clamped.qmax - out.full.zero_point)) {}

  __mmask16 operator()(__mmask16 some, const SixteenSums& of, void* codes) const {
    const __m512 clamped = _mm512_min_ps(highest_, _mm512_max_ps(lowest_, of.scaled));
    const __m512i code = _mm512_add_epi32(_mm512_cvtps_epi32(clamped), zero_point_);
    _mm_mask_storeu_epi8(codes, some, _mm512_cvtepi32_epi8(code));
    return 0;
  }

 private:
  __m512i zero_point_;
  __m512 lowest_, highest_;
};

// Writes the codes and returns which accumulators pass, where mask_follows_from_sums().
class SixteenPasses {
 public:
  explicit SixteenPasses(const OutputCodes& out)
      : zero_point_(_mm512_set1_ps(out.full.zero_point)),
        lowest_(_mm512_set1_ps(out.clamped.qmin)),
        highest_(_mm512_set1_ps(out.clamped.qmax)),
        least_(_mm512_set1_epi32(least_linear_sum(out))) {}

  __mmask16 operator()(__mmask16 some, const SixteenSums& of, void* codes) const {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512 code = _mm512_add_ps(_mm512_roundscale_ps(of.scaled, kNearestEven), zero_point_);
    const __m512 clamped = _mm512_min_ps(highest_, _mm512_max_ps(lowest_, code));
    _mm_mask_storeu_epi8(codes, some, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped)));
    return _mm512_mask_cmpge_epi32_mask(_mm512_mask_cmp_ps_mask(some, code, clamped, _CMP_EQ_OQ),
                                        of.sum, least_);
  }

 private:
  __m512 zero_point_, lowest_, highest_;
  __m512i least_;
};

// By value: codes are bytes, which might alias anything else. The mask is null for SixteenCodes.
template <typename Code, class Sixteen>
void requantize_sixteens(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
                         const float* multiplier, Sixteen sixteen, Code* codes,
                         std::uint8_t* mask) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __mmask16 passes =
        sixteen(0xFFFF, {0xFFFF, acc + i, bias + i, multiplier + i}, codes + i);
    if (mask != nullptr) std::memcpy(mask + i / 8, &passes, 2);
  }
  if (i == n) return;
  const auto some = static_cast<__mmask16>((1U << (n - i)) - 1);
  const __mmask16 passes = sixteen(some, {some, acc + i, bias + i, multiplier + i}, codes + i);
  if (mask == nullptr) return;
  mask[i / 8] = static_cast<std::uint8_t>(passes);
  if (n - i > 8) mask[i / 8 + 1] = static_cast<std::uint8_t>(passes >> 8);
}
#endif

#ifdef __aarch64__
// codes_of_run() where codes_are_finite(), for as many accumulators as are a multiple of sixteen;
// returns how many. Each step saturates at the ends of its type, within which all codes lie.
template <typename Code>
std::int64_t codes_of_sixteens(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
                               const float* multiplier, const OutputCodes& out, Code* codes) {
  const int16x8_t zero_point = vdupq_n_s16(static_cast<std::int16_t>(out.full.zero_point));
  const auto lowest = static_cast<Code>(out.clamped.qmin);
  const auto highest = static_cast<Code>(out.clamped.qmax);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    int16x4_t four[4];
    for_each_index<4>([&](auto part) {
      const std::int64_t at = i + 4 * part;
      const int32x4_t sum = vaddq_s32(vld1q_s32(acc + at), vld1q_s32(bias + at));
      const float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(sum), vld1q_f32(multiplier + at));
      four[part] = vqmovn_s32(vcvtnq_s32_f32(scaled));
    });
    const int16x8_t low = vqaddq_s16(vcombine_s16(four[0], four[1]), zero_point);
    const int16x8_t high = vqaddq_s16(vcombine_s16(four[2], four[3]), zero_point);
    if constexpr (std::is_signed_v<Code>) {
      const int8x16_t whole = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
      vst1q_s8(codes + i, vminq_s8(vmaxq_s8(whole, vdupq_n_s8(lowest)), vdupq_n_s8(highest)));
    } else {
      const uint8x16_t whole = vcombine_u8(vqmovun_s16(low), vqmovun_s16(high));
      vst1q_u8(codes + i, vminq_u8(vmaxq_u8(whole, vdupq_n_u8(lowest)), vdupq_n_u8(highest)));
    }
  }
  return i;
}
#endif

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
    std::vector<float> multipliers(static_cast<std::size_t>(k.op.channels));
    for (std::size_t c = 0; c < multipliers.size(); ++c) {
      multipliers[c] = requantize_multiplier(k.product_scale[c], *k.scale);
    }
    multiplier_ = tile_values<float>(tiled_.plan, multipliers.data());
    for (std::size_t c = 0; c < multipliers.size(); ++c) {
      by_sums_ = by_sums_ &&
                 (k.mask == nullptr ? codes_are_finite(multipliers[c])
                                    : mask_follows_from_sums(k.op.activation, k.product_scale[c],
                                                             multipliers[c]));
    }
  }

  // Codes and mask of the elements [begin, end), whose accumulators begin at `acc`. Parts begin at
  // multiples of 8 where there is a mask.
  void operator()(std::int64_t begin, std::int64_t end, const std::int32_t* acc) const {
#ifdef __AVX512BW__
    if (by_sums_ && !is_masked()) return write_sixteens<SixteenCodes>(begin, end, acc);
    if constexpr (kHasMasks) {
      if (by_sums_ && tiled_.plan.tile() % 8 == 0) {
        return write_sixteens<SixteenPasses>(begin, end, acc);
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
                codes_of_sixteens(length, acc + (first - begin), tiled_.bias.data() + slot,
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

#ifdef __AVX512BW__
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
  bool by_sums_ = true;
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
