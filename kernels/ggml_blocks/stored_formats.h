// Types of ggml's whose blocks are decoded and not made here: files have them.
//
// decode() is dequantize_row_* of ggml-quants.c, in float32 without fused operations.
#pragma once

#include "steelyard/kernels/ggml_blocks/block_formats.h"

namespace steelyard::kernels {
namespace ggml {

// The fifth bits of 32 codes, before their nibbles.
STEELYARD_HOST_DEVICE inline int load_five_bits(const std::uint8_t* fifths,
                                                const std::uint8_t* nibbles, int j) {
  return load_nibble(nibbles, j) | ((fifths[j / 8] >> (j % 8)) & 1) << 4;
}

// The scale and the minimum of the 32 values of a part (0 to 7) of a block of 256: 6 bits each, in
// 12 bytes.
struct SixBits {
  int scale, minimum;
};
STEELYARD_HOST_DEVICE inline SixBits load_six_bits(const std::uint8_t* packed, int part) {
  if (part < 4) return {packed[part] & 63, packed[part + 4] & 63};
  return {(packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4,
          packed[part + 4] >> 4 | (packed[part] >> 6) << 4};
}

// Values of a block of 256 that begins with d, m and the scales and minima of its parts of 32.
template <class Code>
STEELYARD_HOST_DEVICE void decode_six_bits(const std::uint8_t* block, const Code& code, float* x) {
  const float scale = load_half(block), minimum = load_half(block + 2);
  for (int part = 0; part < 8; ++part) {
    const SixBits of = load_six_bits(block + 4, part);
    const float by = scale * static_cast<float>(of.scale);
    const float low = minimum * static_cast<float>(of.minimum);
    for (int j = 32 * part; j < 32 * (part + 1); ++j) {
      x[j] = by * static_cast<float>(code(part, j)) - low;
    }
  }
}

// Four bits of 256 codes: of each 64 the first half in the low nibbles of 32 bytes.
STEELYARD_HOST_DEVICE inline int load_nibble_of_256(const std::uint8_t* nibbles, int j) {
  const int byte = nibbles[j / 64 * 32 + j % 32];
  return j % 64 < 32 ? byte & 15 : byte >> 4;
}

// Two bits of 256 codes: of each 128 four quarters in 32 bytes, the first one lowest.
STEELYARD_HOST_DEVICE inline int load_pair_of_256(const std::uint8_t* pairs, int j) {
  return (pairs[j / 128 * 32 + j % 32] >> (j % 128 / 32 * 2)) & 3;
}

}  // namespace ggml

// value = (q - 16) d, 5 bits.
struct Q5_0Blocks {
  static constexpr BlockType kType = BlockType::kQ5_0;
  static constexpr int kElements = 32, kBytes = 22;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const float scale = ggml::load_half(block);
    for (int j = 0; j < kElements; ++j) {
      x[j] = static_cast<float>(ggml::load_five_bits(block + 2, block + 6, j) - 16) * scale;
    }
  }
};

// value = q d + m, 5 bits.
struct Q5_1Blocks {
  static constexpr BlockType kType = BlockType::kQ5_1;
  static constexpr int kElements = 32, kBytes = 24;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const float scale = ggml::load_half(block), low = ggml::load_half(block + 2);
    for (int j = 0; j < kElements; ++j) {
      x[j] = static_cast<float>(ggml::load_five_bits(block + 4, block + 8, j)) * scale + low;
    }
  }
};

// value = q (d s) - (m l), 2 bits; s and l of 4 bits for each 16 values.
struct Q2_KBlocks {
  static constexpr BlockType kType = BlockType::kQ2_K;
  static constexpr int kElements = 256, kBytes = 84;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const float scale = ggml::load_half(block + 80), minimum = ggml::load_half(block + 82);
    for (int j = 0; j < kElements; ++j) {
      const int packed = block[j / 16];
      const float by = scale * static_cast<float>(packed & 15);
      const float low = minimum * static_cast<float>(packed >> 4);
      x[j] = by * static_cast<float>(ggml::load_pair_of_256(block + 16, j)) - low;
    }
  }
};

// value = (q - 4) (d (s - 32)), 3 bits; s of 6 bits for each 16 values.
struct Q3_KBlocks {
  static constexpr BlockType kType = BlockType::kQ3_K;
  static constexpr int kElements = 256, kBytes = 110;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const std::uint8_t *thirds = block, *pairs = block + 32, *packed = block + 96;
    const float scale = ggml::load_half(block + 108);
    for (int j = 0; j < kElements; ++j) {
      const int part = j / 16;
      const int low = part < 8 ? packed[part] & 15 : packed[part - 8] >> 4;
      const int high = (packed[8 + part % 4] >> (part / 4 * 2)) & 3;
      const float by = scale * static_cast<float>((low | high << 4) - 32);
      const int third = (thirds[j % 32] >> (j / 32)) & 1;
      x[j] = by * static_cast<float>(ggml::load_pair_of_256(pairs, j) - (third != 0 ? 0 : 4));
    }
  }
};

// value = (d s) q - m l, 4 bits; s and l of 6 bits for each 32 values.
struct Q4_KBlocks {
  static constexpr BlockType kType = BlockType::kQ4_K;
  static constexpr int kElements = 256, kBytes = 144;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    ggml::decode_six_bits(
        block, [&](int, int j) { return ggml::load_nibble_of_256(block + 16, j); }, x);
  }
};

// As Q4_K, 5 bits.
struct Q5_KBlocks {
  static constexpr BlockType kType = BlockType::kQ5_K;
  static constexpr int kElements = 256, kBytes = 176;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const auto code = [&](int part, int j) {
      const int fifth = (block[16 + j % 32] >> part) & 1;
      return ggml::load_nibble_of_256(block + 48, j) | fifth << 4;
    };
    ggml::decode_six_bits(block, code, x);
  }
};

// value = (d s) (q - 32), 6 bits; s of 8 bits, signed, for each 16 values.
struct Q6_KBlocks {
  static constexpr BlockType kType = BlockType::kQ6_K;
  static constexpr int kElements = 256, kBytes = 210;
  STEELYARD_HOST_DEVICE static void decode(const std::uint8_t* block, float* x) {
    const float scale = ggml::load_half(block + 208);
    for (int j = 0; j < kElements; ++j) {
      const int nibbles = block[j / 128 * 64 + j % 64];
      const int low = j % 128 < 64 ? nibbles & 15 : nibbles >> 4;
      const int code = low | ggml::load_pair_of_256(block + 128, j) << 4;
      const auto of = static_cast<float>(static_cast<std::int8_t>(block[192 + j / 16]));
      x[j] = scale * of * static_cast<float>(code - 32);
    }
  }
};

}  // namespace steelyard::kernels
