// How ggml's block types hold values: a format for each, with what makes a block of values and
// what a block's values are.
//
// encode() follows ggml's reference quantizers (quantize_row_*_ref in ggml-quants.c;
// searched_formats.h has other scales): float32 without fused operations, the
// scale inverted before it is rounded to float16. Where their conversion of a float to an integer
// is undefined, it is x86's: 0 in the lowest 8 bits. Two things differ:
//  - a block with a value that is not finite has a scale that is NaN, so that its values are NaN
//    and a loss shows it (ggml: NaN becomes one of the codes, or is skipped); float types keep
//    values as they are, a NaN as 0x7FFF;
//  - exponents of MXFP4 below those of E8M0 are 0 (ggml: modulo 256, where all codes are 0).
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/bits.h"
#include "steelyard/kernels/ggml_blocks/block_type.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// The elements of a block of inputs, and of the weights that meet it.
inline constexpr int kGgmlBlock = 32;

namespace ggml {

STEELYARD_HOST_DEVICE inline void store_half(std::uint8_t* to, float value) {
  const std::uint16_t bits = narrow<Half>(value).bits;
  to[0] = static_cast<std::uint8_t>(bits & 255U);
  to[1] = static_cast<std::uint8_t>(bits >> 8);
}

STEELYARD_HOST_DEVICE inline float load_half(const std::uint8_t* from) {
  return widen(Half{static_cast<std::uint16_t>(from[0] | (from[1] << 8))});
}

// Towards zero; what an int32 cannot hold is its lowest value, whose lowest bits are 0.
STEELYARD_HOST_DEVICE inline std::int32_t truncated(float value) {
  const bool fits = value > -2147483904.0F && value < 2147483648.0F;
  return static_cast<std::int32_t>(fits ? value : -2147483648.0F);
}

STEELYARD_HOST_DEVICE inline bool is_number(float value) { return value - value == 0.0F; }

// The largest magnitude of a block: its value with its sign, the first of several. Infinite or NaN
// where one of the values is.
template <int kElements>
STEELYARD_HOST_DEVICE float signed_extreme(const float* x) {
  float largest = 0.0F, poison = 0.0F;
#ifdef _OPENMP
#pragma omp simd reduction(max : largest) reduction(+ : poison)
#endif
  for (int j = 0; j < kElements; ++j) {
    const float size = std::fabs(x[j]);
    largest = size > largest ? size : largest;
    poison += x[j] - x[j];  // NaN, from an infinity or a NaN
  }
  int first = kElements;
#ifdef _OPENMP
#pragma omp simd reduction(min : first)
#endif
  for (int j = 0; j < kElements; ++j) {
    const int at = std::fabs(x[j]) == largest ? j : kElements;
    first = at < first ? at : first;
  }
  return (largest > 0.0F ? x[first] : 0.0F) + poison;
}

// Codes of 4 bits: j and j + 16 share a byte.
template <class CodeOf>
STEELYARD_HOST_DEVICE void store_nibbles(std::uint8_t* to, const CodeOf& code) {
  std::uint8_t codes[32];  // apart from `to`, which could be any memory
#ifdef _OPENMP
#pragma omp simd
#endif
  for (int j = 0; j < 32; ++j) codes[j] = static_cast<std::uint8_t>(code(j));
  for (int j = 0; j < 16; ++j) to[j] = static_cast<std::uint8_t>(codes[j] | (codes[j + 16] << 4));
}
STEELYARD_HOST_DEVICE inline int load_nibble(const std::uint8_t* from, int j) {
  return j < 16 ? from[j] & 15 : from[j - 16] >> 4;
}

STEELYARD_HOST_DEVICE inline float inverse_of(float scale) {
  return scale != 0.0F ? 1.0F / scale : 0.0F;
}

// The code of the grid's nearest number, for a scale that is given.
STEELYARD_HOST_DEVICE inline int nearest_code(float x, float scale, CodeRange range) {
  const auto grid = make_code_grid(range, scale, 0);
  return static_cast<int>(to_integer_code(unclamped_code(x, grid), grid));
}

}  // namespace ggml

// Plain numbers: blocks of one.
struct F32Blocks {
  static constexpr BlockType kType = BlockType::kF32;
  static constexpr int kElements = 1, kBytes = 4;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const std::uint32_t bits = bits_as<std::uint32_t>(*x);
    for (int i = 0; i < 4; ++i) block[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  }
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(block[i]) << (8 * i);
    *x = bits_as<float>(bits);
  }
};

struct F16Blocks {
  static constexpr BlockType kType = BlockType::kF16;
  static constexpr int kElements = 1, kBytes = 2;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    ggml::store_half(block, *x);
  }
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    *x = ggml::load_half(block);
  }
};

struct BF16Blocks {
  static constexpr BlockType kType = BlockType::kBF16;
  static constexpr int kElements = 1, kBytes = 2;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const std::uint16_t bits = narrow<BFloat16>(*x).bits;
    block[0] = static_cast<std::uint8_t>(bits & 255U);
    block[1] = static_cast<std::uint8_t>(bits >> 8);
  }
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    *x = widen(BFloat16{static_cast<std::uint16_t>(block[0] | (block[1] << 8))});
  }
};

// Formats with integer codes also have scale_of(block), the float that codes are multiplied by,
// and code(block, j), the integer that element j has: value = code * scale. encode_with() takes a
// scale, which it rounds to what the block can hold, and the nearest codes, half to even.

// d = the extreme / -8, so that it has the code -8.
struct Q4_0Blocks {
  static constexpr BlockType kType = BlockType::kQ4_0;
  static constexpr int kElements = 32, kBytes = 18;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float scale = ggml::signed_extreme<kElements>(x) / -8.0F;
    const float inverse = ggml::inverse_of(scale);
    ggml::store_half(block, scale);
    ggml::store_nibbles(block + 2, [&](int j) {
      const auto code = static_cast<std::int8_t>(ggml::truncated(x[j] * inverse + 8.5F));
      return code < 15 ? code & 15 : 15;
    });
  }
  STEELYARD_HOST_DEVICE static void encode_with(const float* x, float scale, std::uint8_t* block) {
    ggml::store_half(block, scale);
    const float held = scale_of(block);
    ggml::store_nibbles(block + 2, [&](int j) {
      return ggml::nearest_code(x[j], held, {-8, 7}) + 8;
    });
  }
  STEELYARD_HOST_DEVICE static float scale_of(const std::uint8_t* block) {
    return ggml::load_half(block);
  }
  STEELYARD_HOST_DEVICE static int code(const std::uint8_t* block, int j) {
    return ggml::load_nibble(block + 2, j) - 8;
  }
};

// d = (max - min) / 15 and m = min: value = q d + m. The one format whose zero is not a code.
struct Q4_1Blocks {
  static constexpr BlockType kType = BlockType::kQ4_1;
  static constexpr int kElements = 32, kBytes = 20;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    float low = 3.40282347e38F, high = -3.40282347e38F, poison = 0.0F;
    for (int j = 0; j < kElements; ++j) {
      low = x[j] < low ? x[j] : low;
      high = x[j] > high ? x[j] : high;
      poison += x[j] - x[j];
    }
    const float scale = (high - low) / 15.0F + poison;
    const float inverse = ggml::inverse_of(scale);
    ggml::store_half(block, scale);
    ggml::store_half(block + 2, low);
    ggml::store_nibbles(block + 4, [&](int j) {
      const auto code = static_cast<std::int8_t>(ggml::truncated((x[j] - low) * inverse + 0.5F));
      return code < 15 ? code & 15 : 15;
    });
  }
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const float scale = ggml::load_half(block), low = ggml::load_half(block + 2);
    for (int j = 0; j < kElements; ++j) {
      x[j] = static_cast<float>(ggml::load_nibble(block + 4, j)) * scale + low;
    }
  }
};

// d = amax / 127, codes from -127, halves away from zero.
struct Q8_0Blocks {
  static constexpr BlockType kType = BlockType::kQ8_0;
  static constexpr int kElements = 32, kBytes = 34;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float scale = std::fabs(ggml::signed_extreme<kElements>(x)) / 127.0F;
    const float inverse = ggml::inverse_of(scale);
    ggml::store_half(block, scale);
    for (int j = 0; j < kElements; ++j) {
      block[2 + j] = static_cast<std::uint8_t>(ggml::truncated(std::round(x[j] * inverse)));
    }
  }
  STEELYARD_HOST_DEVICE static void encode_with(const float* x, float scale, std::uint8_t* block) {
    ggml::store_half(block, scale);
    const float held = scale_of(block);
    for (int j = 0; j < kElements; ++j) {
      block[2 + j] = static_cast<std::uint8_t>(ggml::nearest_code(x[j], held, {-128, 127}));
    }
  }
  STEELYARD_HOST_DEVICE static float scale_of(const std::uint8_t* block) {
    return ggml::load_half(block);
  }
  STEELYARD_HOST_DEVICE static int code(const std::uint8_t* block, int j) {
    return static_cast<std::int8_t>(block[2 + j]);
  }
};

// Q8_0 as ggml makes it of a product's inputs on x86: x (127 / amax), half to even. (Its rules for
// NEON and CUDA differ in halves and in the last bit of the factor.)
struct InputBlocks : Q8_0Blocks {
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float largest = std::fabs(ggml::signed_extreme<kElements>(x));
    const float factor = largest != 0.0F ? 127.0F / largest : 0.0F;
    ggml::store_half(block, largest / 127.0F);
    for (int j = 0; j < kElements; ++j) {
      const float code = std::rint(x[j] * factor);
      // x86's conversion, and then the nearest int8
      block[2 + j] =
          static_cast<std::uint8_t>(code >= -128.0F && code <= 127.0F       ? static_cast<int>(code)
                                    : code > 127.0F && code < 2147483648.0F ? 127
                                                                            : -128);
    }
  }
};

// Sixteen numbers, denser around zero.
struct Iq4NlBlocks {
  static constexpr BlockType kType = BlockType::kIq4Nl;
  static constexpr int kElements = 32, kBytes = 18;

  STEELYARD_HOST_DEVICE static int number(int index) {
    constexpr std::int8_t kNumbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
    return kNumbers[index];
  }
  // Of the nearest number; of two as near, the larger one. NaN: the largest.
  STEELYARD_HOST_DEVICE static int nearest(float x) {
    if (x <= -127.0F) return 0;
    if (x >= 113.0F) return 15;
    int below = 0, above = 15;
    while (above - below > 1) {
      const int middle = (below + above) / 2;
      if (x < static_cast<float>(number(middle))) {
        above = middle;
      } else {
        below = middle;
      }
    }
    const float down = x - static_cast<float>(number(below));
    const float up = static_cast<float>(number(above)) - x;
    return down < up ? below : above;
  }
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float extreme = ggml::signed_extreme<kElements>(x);
    const float first = extreme / -127.0F;
    store(x, block, extreme, 1.0F / first, fit(x, 1.0F / first).scale());
  }
  STEELYARD_HOST_DEVICE static void encode_with(const float* x, float scale, std::uint8_t* block) {
    ggml::store_half(block, scale);
    const float held = scale_of(block);
    ggml::store_nibbles(block + 2,
                        [&](int j) { return nearest(held != 0.0F ? x[j] / held : 0.0F); });
  }
  STEELYARD_HOST_DEVICE static float scale_of(const std::uint8_t* block) {
    return ggml::load_half(block);
  }
  STEELYARD_HOST_DEVICE static int code(const std::uint8_t* block, int j) {
    return number(ggml::load_nibble(block + 2, j));
  }

 protected:
  // Below it a block is zero.
  static constexpr float kSmallest = 1e-15F;

  // The sums of least squares, weighted by x^2, for the codes nearest to x * inverse.
  struct Fit {
    float with_x = 0.0F, squares = 0.0F;
    STEELYARD_HOST_DEVICE float scale() const { return squares > 0.0F ? with_x / squares : 0.0F; }
  };
  STEELYARD_HOST_DEVICE static Fit fit(const float* x, float inverse) {
    Fit sums;
    for (int j = 0; j < kElements; ++j) {
      const auto q = static_cast<float>(number(nearest(inverse * x[j])));
      const float weight = x[j] * x[j];
      sums.with_x += weight * q * x[j];
      sums.squares += weight * q * q;
    }
    return sums;
  }
  STEELYARD_HOST_DEVICE static void store(const float* x, std::uint8_t* block, float extreme,
                                          float inverse, float scale) {
    const bool zero = std::fabs(extreme) < kSmallest;
    ggml::store_half(block, !ggml::is_number(extreme) ? extreme - extreme : zero ? 0.0F : scale);
    ggml::store_nibbles(block + 2,
                        [&](int j) { return zero ? kCodeOfZeroBlocks : nearest(inverse * x[j]); });
  }
  static constexpr int kCodeOfZeroBlocks = 8;
};

// OCP's MXFP4: E2M1 with a power of two, kept doubled so that codes are integers.
// e = floor(log2(amax)) - 2 + 127; the value is code * 2^(e - 128), and NaN for e = 255.
struct Mxfp4Blocks {
  static constexpr BlockType kType = BlockType::kMxfp4;
  static constexpr int kElements = 32, kBytes = 17;
  static constexpr int kNan = 255;

  STEELYARD_HOST_DEVICE static int number(int index) {
    const int size = index & 7;
    const int doubled = size < 5 ? size : size == 5 ? 6 : size == 6 ? 8 : 12;
    return index < 8 ? doubled : -doubled;
  }
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    store(x, exponent_of(ggml::signed_extreme<kElements>(x)), block);
  }
  // A scale is what the largest number, 12, is doubled by: the power of two that is not above it.
  STEELYARD_HOST_DEVICE static void encode_with(const float* x, float scale, std::uint8_t* block) {
    int exponent = 0;
    std::frexp(scale, &exponent);
    exponent += 127;
    store(x,
          !ggml::is_number(scale) ? kNan
          : exponent < 0          ? 0
          : exponent > 254        ? 254
                                  : exponent,
          block);
  }
  STEELYARD_HOST_DEVICE static float scale_of(const std::uint8_t* block) { return power(block[0]); }
  STEELYARD_HOST_DEVICE static int code(const std::uint8_t* block, int j) {
    return number(ggml::load_nibble(block + 1, j));
  }

 protected:
  // 2^(e - 128): below e = 2 a denormal.
  STEELYARD_HOST_DEVICE static float power(int e) {
    if (e == kNan) return bits_as<float>(0x7FC00000U);
    const auto bits = static_cast<std::uint32_t>(e);
    return bits_as<float>(bits < 2 ? 0x00200000U << bits : (bits - 1) << 23);
  }
  // ggml takes the logarithm in float32, which rounds up to a whole number just below a power of
  // two: in double and rounded once it is the same.
  STEELYARD_HOST_DEVICE static int exponent_of(float extreme) {
    if (!ggml::is_number(extreme)) return kNan;
    if (extreme == 0.0F) return 0;
    const auto logarithm = static_cast<float>(std::log2(static_cast<double>(std::fabs(extreme))));
    const int exponent = static_cast<int>(std::floor(logarithm)) - 2 + 127;
    return exponent < 0 ? 0 : exponent;
  }
  // The first of the nearest numbers.
  STEELYARD_HOST_DEVICE static int nearest(float x, float scale) {
    int best = 0;
    float least = std::fabs(x);
    for (int index = 1; index < 16; ++index) {
      const float off = std::fabs(static_cast<float>(number(index)) * scale - x);
      best = off < least ? index : best;
      least = off < least ? off : least;
    }
    return best;
  }
  STEELYARD_HOST_DEVICE static void store(const float* x, int exponent, std::uint8_t* block) {
    block[0] = static_cast<std::uint8_t>(exponent);
    const float scale = power(exponent);
    ggml::store_nibbles(block + 1, [&](int j) { return nearest(x[j], scale); });
  }
};

// d = amax, codes -1 to 2 (the reference uses -1 to 1), halves away from zero.
struct Q2_0Blocks {
  static constexpr BlockType kType = BlockType::kQ2_0;
  static constexpr int kElements = 64, kBytes = 18;
  STEELYARD_HOST_DEVICE static void encode(const float* x, std::uint8_t* block) {
    const float scale = std::fabs(ggml::signed_extreme<kElements>(x));
    const float inverse = ggml::inverse_of(scale);
    store(block, scale, [&](int j) {
      const float rounded = std::round(x[j] * inverse);
      return ggml::is_number(rounded) ? static_cast<int>(rounded < -1.0F  ? -1.0F
                                                         : rounded > 2.0F ? 2.0F
                                                                          : rounded)
                                      : -1;
    });
  }
  STEELYARD_HOST_DEVICE static void encode_with(const float* x, float scale, std::uint8_t* block) {
    ggml::store_half(block, scale);
    const float held = scale_of(block);
    store(block, scale, [&](int j) { return ggml::nearest_code(x[j], held, {-1, 2}); });
  }
  STEELYARD_HOST_DEVICE static float scale_of(const std::uint8_t* block) {
    return ggml::load_half(block);
  }
  STEELYARD_HOST_DEVICE static int code(const std::uint8_t* block, int j) {
    return ((block[2 + j / 4] >> (2 * (j % 4))) & 3) - 1;
  }

 private:
  template <class CodeOf>
  STEELYARD_HOST_DEVICE static void store(std::uint8_t* block, float scale, const CodeOf& code) {
    ggml::store_half(block, scale);
    for (int byte = 0; byte < kElements / 4; ++byte) {
      int bits = 0;
      for (int k = 0; k < 4; ++k) bits |= (code(4 * byte + k) + 1) << (2 * k);
      block[2 + byte] = static_cast<std::uint8_t>(bits);
    }
  }
};

// A block's values.
template <class Format>
STEELYARD_HOST_DEVICE void decode_block(const std::uint8_t* block, float* x) {
  if constexpr (requires { Format::decode(block, x); }) {
    Format::decode(block, x);
  } else {
    const float scale = Format::scale_of(block);
    for (int j = 0; j < Format::kElements; ++j) {
      x[j] = static_cast<float>(Format::code(block, j)) * scale;
    }
  }
}

}  // namespace steelyard::kernels
