// Other scales for the types of block_formats.h: of a few for each block one whose values are
// nearer to the block's. Blocks are decoded as those of the type.
//
// All in float32 without fused operations, sums in a stated order: every backend makes the same
// blocks. Values that lie on a block's grid get this grid again, but for IQ4_NL, whose search is
// ggml's own.
#pragma once

#include "steelyard/kernels/ggml_blocks/block_formats.h"

namespace steelyard::kernels {
namespace ggml {

inline constexpr int kSumLanes = 8;

// value(0) + ... + value(31): eight sums of every eighth one, and then of their two halves.
template <class Value>
STEELYARD_HOST_DEVICE float lane_sum(const Value& value) {
  float lanes[kSumLanes] = {};
  for (int j = 0; j < 32; j += kSumLanes) {
#ifdef _OPENMP
#pragma omp simd
#endif
    for (int lane = 0; lane < kSumLanes; ++lane) lanes[lane] += value(j + lane);
  }
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The sum of squared differences of a block's values from x.
template <class Format>
STEELYARD_HOST_DEVICE float squared_error(const float* x, const std::uint8_t* block) {
  float values[32];
  const float scale = Format::scale_of(block);
  for (int j = 0; j < 32; ++j) values[j] = static_cast<float>(Format::code(block, j)) * scale;
  return lane_sum([&](int j) { return (values[j] - x[j]) * (values[j] - x[j]); });
}

}  // namespace ggml

// Codes are the nearest to x c / extreme, for twelve c around -8 and 7 (with which the extreme has
// the outermost code of either side); the scale is that of least squares for them. The c of the
// least error, the reference's block where that has none larger.
struct SearchedQ4_0Blocks : Q4_0Blocks {
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    Q4_0Blocks::encode(x, block);
    const float extreme = ggml::signed_extreme<kElements>(x);
    const float inverse = ggml::inverse_of(extreme);
    if (!ggml::is_number(extreme) || !ggml::is_number(inverse)) return;
    float y[kElements];  // from -1 to 1
    for (int j = 0; j < kElements; ++j) y[j] = x[j] * inverse;
    Fit best;
    for (int step = 0; step < 6; ++step) {
      best = nearer(best, fit(y, -7.0F - 0.5F * static_cast<float>(step)));
      best = nearer(best, fit(y, 6.0F + 0.5F * static_cast<float>(step)));
    }
    if (!(best.squares > 0.0F)) return;
    std::uint8_t other[kBytes];
    ggml::store_half(other, extreme * (best.with_y / best.squares));
    ggml::store_nibbles(other + 2,
                        [&](int j) { return static_cast<int>(code_of(y[j], best.by)) + 8; });
    if (!(ggml::squared_error<Q4_0Blocks>(x, other) < ggml::squared_error<Q4_0Blocks>(x, block))) {
      return;
    }
    for (int i = 0; i < kBytes; ++i) block[i] = other[i];
  }

 private:
  // The sums of least squares for the codes of y * by.
  struct Fit {
    float by = 0.0F, with_y = 0.0F, squares = 0.0F;
  };
  STEELYARD_HOST_DEVICE static float code_of(float y, float by) {
    const float code = std::rint(y * by);
    const float above = code < -8.0F ? -8.0F : code;
    return above > 7.0F ? 7.0F : above;
  }
  STEELYARD_HOST_DEVICE static Fit fit(const float* y, float by) {
    float codes[kElements];
#ifdef _OPENMP
#pragma omp simd
#endif
    for (int j = 0; j < kElements; ++j) codes[j] = code_of(y[j], by);
    return {by, ggml::lane_sum([&](int j) { return codes[j] * y[j]; }),
            ggml::lane_sum([&](int j) { return codes[j] * codes[j]; })};
  }
  // What is explained of y's squares is with_y^2 / squares.
  STEELYARD_HOST_DEVICE static Fit nearer(const Fit& a, const Fit& b) {
    return b.with_y * b.with_y * a.squares > a.with_y * a.with_y * b.squares || !(a.squares > 0.0F)
               ? b
               : a;
  }
};

// The search that ggml_quantize_chunk makes: of 16 scales the one whose codes fit best, values
// weighted by their squares.
struct SearchedIq4NlBlocks : Iq4NlBlocks {
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float extreme = ggml::signed_extreme<kElements>(x);
    Fit first = fit(x, 1.0F / (-extreme / -127.0F));
    float scale = first.scale(), best = scale * first.with_x;
    for (int attempt = -7; attempt <= 7; ++attempt) {
      const Fit sums = fit(x, static_cast<float>(attempt - 127) / extreme);
      if (sums.squares > 0.0F && sums.with_x * sums.with_x > best * sums.squares) {
        scale = sums.scale();
        best = scale * sums.with_x;
      }
    }
    store(x, block, extreme, ggml::inverse_of(scale), scale);
  }
};

// The reference's exponent, the one above or the one below: of the least error, in this order
// where errors are equal.
struct SearchedMxfp4Blocks : Mxfp4Blocks {
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    Mxfp4Blocks::encode(x, block);
    if (block[0] == kNan) return;
    const int exponent = block[0];
    float least = ggml::squared_error<Mxfp4Blocks>(x, block);
    for (const int other : {exponent + 1, exponent - 1}) {
      if (other < 0 || other >= kNan) continue;
      std::uint8_t tried[kBytes];
      store(x, other, tried);
      const float error = ggml::squared_error<Mxfp4Blocks>(x, tried);
      if (!(error < least)) continue;
      least = error;
      for (int i = 0; i < kBytes; ++i) block[i] = tried[i];
    }
  }
};

}  // namespace steelyard::kernels
