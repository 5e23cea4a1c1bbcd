// Other scales for the types of block_formats.h: of a few for each block one whose values are
// nearer to the block's. Blocks are decoded as those of the type.
//
// All in float32 without fused operations, sums in the order of a block's values: every backend
// makes the same blocks. Values that lie on a block's grid stay what they are, but for IQ4_NL,
// whose search is ggml's own.
#pragma once

#include "steelyard/kernels/ggml_blocks/block_formats.h"

namespace steelyard::kernels {
namespace ggml {

// The sum of squared differences of a block's values from x.
template <class Format>
STEELYARD_HOST_DEVICE float squared_error(const float* x, const std::uint8_t* block) {
  float sum = 0.0F;
  const float scale = Format::scale_of(block);
  for (int j = 0; j < Format::kElements; ++j) {
    const float off = static_cast<float>(Format::code(block, j)) * scale - x[j];
    sum += off * off;
  }
  return sum;
}

}  // namespace ggml

// Codes are the nearest to x c / extreme, for eight c around -8 and 7 (with which the extreme has
// the outermost code of either side); the scale is that of least squares for them. Of these blocks
// and the reference's the one of the least error, the first where errors are equal.
struct SearchedQ4_0Blocks : Q4_0Blocks {
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    Q4_0Blocks::encode(x, block);
    const float extreme = ggml::signed_extreme<kElements>(x);
    const float inverse = ggml::inverse_of(extreme);
    if (!ggml::is_number(extreme) || !ggml::is_number(inverse)) return;
    Fits fits;
    for (int j = 0; j < kElements; ++j) fits.add(x[j] * inverse);
    fits.find_scales(extreme);
    for (int j = 0; j < kElements; ++j) fits.add_error(x[j], x[j] * inverse);
    int best = -1;
    float least = ggml::squared_error<Q4_0Blocks>(x, block);
    for (int k = 0; k < kTried; ++k) {
      if (!(fits.errors[k] < least)) continue;
      best = k;
      least = fits.errors[k];
    }
    if (best < 0) return;
    ggml::store_half(block, fits.scales[best]);
    const float by = fits.by[best];
    ggml::store_nibbles(block + 2,
                        [&](int j) { return static_cast<int>(code_of(x[j] * inverse, by)) + 8; });
  }

 private:
  static constexpr int kTried = 8;
  STEELYARD_HOST_DEVICE static float code_of(float y, float by) {
    const float code = std::rint(y * by);
    const float above = code < -8.0F ? -8.0F : code;
    return above > 7.0F ? 7.0F : above;
  }

  // What is tried, side by side; y is x / extreme.
  struct Fits {
    float by[kTried] = {-7.0F, -7.75F, -8.0F, -8.5F, -9.25F, 6.0F, 7.0F, 7.75F};
    float with_y[kTried] = {}, squares[kTried] = {}, scales[kTried] = {}, errors[kTried] = {};

    STEELYARD_HOST_DEVICE void add(float y) {
#ifdef _OPENMP
#pragma omp simd
#endif
      for (int k = 0; k < kTried; ++k) {
        const float code = code_of(y, by[k]);
        with_y[k] += code * y;
        squares[k] += code * code;
      }
    }
    STEELYARD_HOST_DEVICE void find_scales(float extreme) {
      for (int k = 0; k < kTried; ++k) {
        scales[k] = widen(narrow<Half>(extreme * (with_y[k] / squares[k])));
      }
    }
    STEELYARD_HOST_DEVICE void add_error(float x, float y) {
#ifdef _OPENMP
#pragma omp simd
#endif
      for (int k = 0; k < kTried; ++k) {
        const float off = code_of(y, by[k]) * scales[k] - x;
        errors[k] += off * off;
      }
    }
  };
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
