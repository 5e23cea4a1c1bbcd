// Codes of sixteen accumulators at a time, where every product of a sum and its multiplier is
// finite. Private to this family and integer products.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "steelyard/kernels/cpu/each_index.h"
#include "steelyard/kernels/requantize/formulas.h"

namespace steelyard::kernels {

// Less than the largest float by a factor of 2^32, so that products of sums are finite.
inline constexpr float kMostFactor = 0x1p96F;
inline bool codes_are_finite(float multiplier) {
  return multiplier >= 0 && multiplier < kMostFactor;
}
// A product that is rounded before it is clamped has to fit 32 bits.
inline bool products_fit(float multiplier) { return multiplier >= 0 && multiplier < 1; }
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

#if defined(__AVX512BW__)
inline __mmask16 first_of_sixteen(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1); }

// The first n of sixteen accumulators, their biases added and scaled.
struct SixteenSums {
  SixteenSums(std::int64_t n, const std::int32_t* acc, const std::int32_t* bias,
              const float* multiplier)
      : some(first_of_sixteen(n)),
        sum(_mm512_add_epi32(_mm512_maskz_loadu_epi32(some, acc),
                             _mm512_maskz_loadu_epi32(some, bias))),
        scaled(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_maskz_loadu_ps(some, multiplier))) {}

  __mmask16 some;
  __m512i sum;
  __m512 scaled;
};

// Writes their codes, where codes_are_finite(); of no mask, it returns 0.
// Clamped first: the ends are integers, which rounding does not cross.
template <typename Code>
class SixteenCodes {
 public:
  explicit SixteenCodes(const OutputCodes& out)
      : zero_point_(_mm512_set1_epi32(static_cast<std::int32_t>(out.full.zero_point))),
        lowest_(_mm512_set1_ps(out.clamped.qmin - out.full.zero_point)),
        highest_(_mm512_set1_ps(out.clamped.qmax - out.full.zero_point)) {}

  std::uint16_t operator()(const SixteenSums& of, Code* codes) const {
    const __m512 clamped = _mm512_min_ps(highest_, _mm512_max_ps(lowest_, of.scaled));
    const __m512i code = _mm512_add_epi32(_mm512_cvtps_epi32(clamped), zero_point_);
    _mm_mask_storeu_epi8(codes, of.some, _mm512_cvtepi32_epi8(code));
    return 0;
  }

 private:
  __m512i zero_point_;
  __m512 lowest_, highest_;
};

// Writes the codes and returns which accumulators pass, where mask_follows_from_sums().
template <typename Code>
class SixteenPasses {
 public:
  explicit SixteenPasses(const OutputCodes& out)
      : zero_point_(_mm512_set1_ps(out.full.zero_point)),
        lowest_(_mm512_set1_ps(out.clamped.qmin)),
        highest_(_mm512_set1_ps(out.clamped.qmax)),
        least_(_mm512_set1_epi32(least_linear_sum(out))) {}

  std::uint16_t operator()(const SixteenSums& of, Code* codes) const {
    constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const __m512 code = _mm512_add_ps(_mm512_roundscale_ps(of.scaled, kNearestEven), zero_point_);
    const __m512 clamped = _mm512_min_ps(highest_, _mm512_max_ps(lowest_, code));
    _mm_mask_storeu_epi8(codes, of.some, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped)));
    return _mm512_mask_cmpge_epi32_mask(_mm512_mask_cmp_ps_mask(of.some, code, clamped, _CMP_EQ_OQ),
                                        of.sum, least_);
  }

 private:
  __m512 zero_point_, lowest_, highest_;
  __m512i least_;
};
#elif defined(__AVX2__)
// The first n of sixteen accumulators, their biases added and scaled, in two halves.
struct SixteenSums {
  SixteenSums(std::int64_t count, const std::int32_t* acc, const std::int32_t* bias,
              const float* multiplier)
      : n(count) {
    for_each_index<2>([&](auto half) {
      const std::int64_t at = 8 * half;
      const __m256i some = first_of_eight(n - at);
      const __m256i of_bias = n == 16 ? _mm256_loadu_si256(eight_at(bias + at))
                                      : _mm256_maskload_epi32(bias + at, some);
      const __m256i of_acc =
          n == 16 ? _mm256_loadu_si256(eight_at(acc + at)) : _mm256_maskload_epi32(acc + at, some);
      const __m256 by =
          n == 16 ? _mm256_loadu_ps(multiplier + at) : _mm256_maskload_ps(multiplier + at, some);
      sum[half] = _mm256_add_epi32(of_acc, of_bias);
      scaled[half] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[half]), by);
    });
  }

  std::int64_t n;
  __m256i sum[2];
  __m256 scaled[2];

 private:
  static const __m256i* eight_at(const std::int32_t* values) {
    return reinterpret_cast<const __m256i*>(values);
  }
  static __m256i first_of_eight(std::int64_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
  }
};

// Writes n bytes: the sum of int16 codes and a zero point, which fits Code.
template <typename Code>
void store_sixteen(std::int64_t n, __m256i low, __m256i high, __m256i zero_point, void* codes) {
  // Halves of registers are packed for themselves: [0 2 1 3] are put in order.
  const __m256i words =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), _MM_SHUFFLE(3, 1, 2, 0));
  const __m256i sums = _mm256_add_epi16(words, zero_point);
  const __m128i first = _mm256_castsi256_si128(sums), second = _mm256_extracti128_si256(sums, 1);
  const __m128i bytes =
      std::is_signed_v<Code> ? _mm_packs_epi16(first, second) : _mm_packus_epi16(first, second);
  if (n == 16) return _mm_storeu_si128(static_cast<__m128i*>(codes), bytes);
  std::memcpy(codes, &bytes, static_cast<std::size_t>(n));
}

// Writes their codes, where codes_are_finite(); of no mask, it returns 0. Clamped first: the ends
// are integers, which rounding does not cross.
template <typename Code>
class SixteenCodes {
 public:
  explicit SixteenCodes(const OutputCodes& out)
      : zero_point_(_mm256_set1_epi16(static_cast<std::int16_t>(out.full.zero_point))),
        lowest_(_mm256_set1_ps(out.clamped.qmin - out.full.zero_point)),
        highest_(_mm256_set1_ps(out.clamped.qmax - out.full.zero_point)) {}

  std::uint16_t operator()(const SixteenSums& of, Code* codes) const {
    store_sixteen<Code>(of.n, rounded(of.scaled[0]), rounded(of.scaled[1]), zero_point_, codes);
    return 0;
  }

 private:
  __m256i rounded(__m256 scaled) const {
    return _mm256_cvtps_epi32(_mm256_min_ps(highest_, _mm256_max_ps(lowest_, scaled)));
  }

  __m256i zero_point_;
  __m256 lowest_, highest_;
};

// Writes the codes and returns which accumulators pass, where mask_follows_from_sums().
template <typename Code>
class SixteenPasses {
 public:
  explicit SixteenPasses(const OutputCodes& out)
      : zero_point_(_mm256_set1_ps(out.full.zero_point)),
        lowest_(_mm256_set1_ps(out.clamped.qmin)),
        highest_(_mm256_set1_ps(out.clamped.qmax)),
        least_(_mm256_set1_epi32(least_linear_sum(out))) {}

  std::uint16_t operator()(const SixteenSums& of, Code* codes) const {
    __m256i rounded[2];
    unsigned passes = 0;
    for_each_index<2>([&](auto half) {
      constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      const __m256 code =
          _mm256_add_ps(_mm256_round_ps(of.scaled[half], kNearestEven), zero_point_);
      const __m256 clamped = _mm256_min_ps(highest_, _mm256_max_ps(lowest_, code));
      rounded[half] = _mm256_cvtps_epi32(clamped);
      const __m256 below = _mm256_castsi256_ps(_mm256_cmpgt_epi32(least_, of.sum[half]));
      const __m256 pass = _mm256_andnot_ps(below, _mm256_cmp_ps(code, clamped, _CMP_EQ_OQ));
      passes |= static_cast<unsigned>(_mm256_movemask_ps(pass)) << (8 * half);
    });
    store_sixteen<Code>(of.n, rounded[0], rounded[1], _mm256_setzero_si256(), codes);
    return static_cast<std::uint16_t>(passes & ((1U << of.n) - 1));
  }

 private:
  __m256 zero_point_, lowest_, highest_;
  __m256i least_;
};
#endif

#if defined(__AVX2__)
// By value: codes are bytes, which might alias anything else. The mask is null for SixteenCodes.
template <typename Code, class Sixteen>
[[gnu::noinline]] void requantize_sixteens(std::int64_t n, const std::int32_t* acc,
                                           const std::int32_t* bias, const float* multiplier,
                                           Sixteen sixteen, Code* codes, std::uint8_t* mask) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const std::uint16_t passes = sixteen({16, acc + i, bias + i, multiplier + i}, codes + i);
    if (mask != nullptr) std::memcpy(mask + i / 8, &passes, 2);
  }
  if (i == n) return;
  const std::uint16_t passes = sixteen({n - i, acc + i, bias + i, multiplier + i}, codes + i);
  if (mask == nullptr) return;
  mask[i / 8] = static_cast<std::uint8_t>(passes);
  if (n - i > 8) mask[i / 8 + 1] = static_cast<std::uint8_t>(passes >> 8);
}
#endif

#if defined(__AVX512BW__)
inline __m512i rounded_products(const std::int32_t* acc, const std::int32_t* bias,
                                const float* multiplier) {
  const __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(acc), _mm512_loadu_si512(bias));
  return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(multiplier)));
}

// Codes of a run where products_fit(), for as many accumulators as are a multiple of 64; returns
// how many. Each step saturates at the ends of its type, within which all codes lie.
template <typename Code>
[[gnu::noinline]] std::int64_t codes_of_vectors(std::int64_t n, const std::int32_t* acc,
                                                const std::int32_t* bias, const float* multiplier,
                                                const OutputCodes& out, Code* codes) {
  const __m512i zero_point = _mm512_set1_epi16(static_cast<std::int16_t>(out.full.zero_point));
  const __m512i lowest = _mm512_set1_epi8(static_cast<char>(out.clamped.qmin));
  const __m512i highest = _mm512_set1_epi8(static_cast<char>(out.clamped.qmax));
  // Lanes of 128 bits are packed for themselves: lane l has four codes of each vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    __m512i rounded[4];
    for_each_index<4>([&](auto part) {
      const std::int64_t at = i + 16 * part;
      rounded[part] = rounded_products(acc + at, bias + at, multiplier + at);
    });
    const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(rounded[0], rounded[1]), zero_point);
    const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(rounded[2], rounded[3]), zero_point);
    __m512i bytes;
    if constexpr (std::is_signed_v<Code>) {
      bytes = _mm512_packs_epi16(low, high);
      bytes = _mm512_min_epi8(_mm512_max_epi8(bytes, lowest), highest);
    } else {
      bytes = _mm512_packus_epi16(low, high);
      bytes = _mm512_min_epu8(_mm512_max_epu8(bytes, lowest), highest);
    }
    _mm512_storeu_si512(codes + i, _mm512_permutexvar_epi32(order, bytes));
  }
  return i;
}
#elif defined(__AVX2__)
inline __m256i rounded_products(const std::int32_t* acc, const std::int32_t* bias,
                                const float* multiplier) {
  const __m256i sum = _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc)),
                                       _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bias)));
  return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(multiplier)));
}

// Codes of a run where products_fit(), for as many accumulators as are a multiple of 32; returns
// how many. Each step saturates at the ends of its type, within which all codes lie.
template <typename Code>
[[gnu::noinline]] std::int64_t codes_of_vectors(std::int64_t n, const std::int32_t* acc,
                                                const std::int32_t* bias, const float* multiplier,
                                                const OutputCodes& out, Code* codes) {
  const __m256i zero_point = _mm256_set1_epi16(static_cast<std::int16_t>(out.full.zero_point));
  const __m256i lowest = _mm256_set1_epi8(static_cast<char>(out.clamped.qmin));
  const __m256i highest = _mm256_set1_epi8(static_cast<char>(out.clamped.qmax));
  // Lanes of 128 bits are packed for themselves: lane l has four codes of each vector.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i rounded[4];
    for_each_index<4>([&](auto part) {
      const std::int64_t at = i + 8 * part;
      rounded[part] = rounded_products(acc + at, bias + at, multiplier + at);
    });
    const __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(rounded[0], rounded[1]), zero_point);
    const __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(rounded[2], rounded[3]), zero_point);
    __m256i bytes;
    if constexpr (std::is_signed_v<Code>) {
      bytes = _mm256_packs_epi16(low, high);
      bytes = _mm256_min_epi8(_mm256_max_epi8(bytes, lowest), highest);
    } else {
      bytes = _mm256_packus_epi16(low, high);
      bytes = _mm256_min_epu8(_mm256_max_epu8(bytes, lowest), highest);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i),
                        _mm256_permutevar8x32_epi32(bytes, order));
  }
  return i;
}
#endif

#ifdef __aarch64__
// Codes of a run where codes_are_finite(), for as many accumulators as are a multiple of sixteen;
// returns how many. Each step saturates at the ends of its type, within which all codes lie.
template <typename Code>
[[gnu::noinline]] std::int64_t codes_of_vectors(std::int64_t n, const std::int32_t* acc,
                                                const std::int32_t* bias, const float* multiplier,
                                                const OutputCodes& out, Code* codes) {
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

}  // namespace steelyard::kernels
