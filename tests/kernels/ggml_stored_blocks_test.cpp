// Blocks that files have, decoded as ggml's loops do it (dequantize_row_* of ggml-quants.c).
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard::kernels::ggml_stored_blocks_test {
namespace {

float half_at(const std::uint8_t* p) {
  Half h;
  std::memcpy(&h.bits, p, 2);
  return widen(h);
}

void put_half(std::uint8_t* p, std::uint16_t bits) { std::memcpy(p, &bits, 2); }

void five_bits(const std::uint8_t* fifths, const std::uint8_t* qs, int* codes) {
  std::uint32_t high = 0;
  std::memcpy(&high, fifths, 4);
  for (int j = 0; j < 16; ++j) {
    codes[j] = (qs[j] & 0x0F) | (((high >> j) << 4) & 0x10);
    codes[j + 16] = (qs[j] >> 4) | ((high >> (j + 12)) & 0x10);
  }
}

void plain(Q5_0Blocks, const std::uint8_t* b, float* y) {
  int codes[32];
  five_bits(b + 2, b + 6, codes);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(codes[j] - 16) * half_at(b);
}

void plain(Q5_1Blocks, const std::uint8_t* b, float* y) {
  int codes[32];
  five_bits(b + 4, b + 8, codes);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(codes[j]) * half_at(b) + half_at(b + 2);
}

void plain(Q2_KBlocks, const std::uint8_t* b, float* y) {
  const float d = half_at(b + 80), min = half_at(b + 82);
  const std::uint8_t* q = b + 16;
  int is = 0;
  for (int n = 0; n < 256; n += 128, q += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int side = 0; side < 32; side += 16) {
        const std::uint8_t sc = b[is++];
        const float dl = d * static_cast<float>(sc & 0xF), ml = min * static_cast<float>(sc >> 4);
        for (int l = 0; l < 16; ++l) {
          *y++ = dl * static_cast<float>((q[l + side] >> shift) & 3) - ml;
        }
      }
    }
  }
}

void plain(Q3_KBlocks, const std::uint8_t* b, float* y) {
  std::uint32_t aux[4] = {};
  std::memcpy(aux, b + 96, 12);
  constexpr std::uint32_t kLow = 0x03030303, kNibbles = 0x0F0F0F0F;
  const std::uint32_t high = aux[2];
  aux[2] = ((aux[0] >> 4) & kNibbles) | (((high >> 4) & kLow) << 4);
  aux[3] = ((aux[1] >> 4) & kNibbles) | (((high >> 6) & kLow) << 4);
  aux[0] = (aux[0] & kNibbles) | ((high & kLow) << 4);
  aux[1] = (aux[1] & kNibbles) | (((high >> 2) & kLow) << 4);
  std::int8_t scales[16];
  std::memcpy(scales, aux, 16);
  const float d = half_at(b + 108);
  const std::uint8_t *q = b + 32, *hm = b;
  int is = 0;
  unsigned m = 1;
  for (int n = 0; n < 256; n += 128, q += 32) {
    for (int shift = 0; shift < 8; shift += 2, m <<= 1) {
      for (int side = 0; side < 32; side += 16) {
        const float dl = d * static_cast<float>(scales[is++] - 32);
        for (int l = side; l < side + 16; ++l) {
          *y++ = dl * static_cast<float>(((q[l] >> shift) & 3) - ((hm[l] & m) != 0 ? 0 : 4));
        }
      }
    }
  }
}

void scale_min(int j, const std::uint8_t* q, int* d, int* m) {
  if (j < 4) {
    *d = q[j] & 63;
    *m = q[j + 4] & 63;
  } else {
    *d = (q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4);
    *m = (q[j + 4] >> 4) | ((q[j] >> 6) << 4);
  }
}

// Q4_K, and Q5_K where there are fifth bits.
void plain_4_or_5(const std::uint8_t* b, const std::uint8_t* q, const std::uint8_t* high,
                  float* y) {
  const float d = half_at(b), min = half_at(b + 2);
  int is = 0;
  unsigned bit = 1;
  for (int n = 0; n < 256; n += 64, q += 32) {
    for (const int shift : {0, 4}) {
      int sc = 0, m = 0;
      scale_min(is++, b + 4, &sc, &m);
      const float d1 = d * static_cast<float>(sc), m1 = min * static_cast<float>(m);
      for (int l = 0; l < 32; ++l) {
        const int fifth = high != nullptr && (high[l] & bit) != 0 ? 16 : 0;
        *y++ = d1 * static_cast<float>(((q[l] >> shift) & 0xF) + fifth) - m1;
      }
      bit <<= 1;
    }
  }
}

void plain(Q4_KBlocks, const std::uint8_t* b, float* y) { plain_4_or_5(b, b + 16, nullptr, y); }
void plain(Q5_KBlocks, const std::uint8_t* b, float* y) { plain_4_or_5(b, b + 48, b + 16, y); }

void plain(Q6_KBlocks, const std::uint8_t* b, float* y) {
  const float d = half_at(b + 208);
  const std::uint8_t *ql = b, *qh = b + 128, *sc = b + 192;
  for (int n = 0; n < 256; n += 128, y += 128, ql += 64, qh += 32, sc += 8) {
    for (int l = 0; l < 32; ++l) {
      const int q[4] = {((ql[l] & 0xF) | (((qh[l] >> 0) & 3) << 4)) - 32,
                        ((ql[l + 32] & 0xF) | (((qh[l] >> 2) & 3) << 4)) - 32,
                        ((ql[l] >> 4) | (((qh[l] >> 4) & 3) << 4)) - 32,
                        ((ql[l + 32] >> 4) | (((qh[l] >> 6) & 3) << 4)) - 32};
      for (int i = 0; i < 4; ++i) {
        const auto s = static_cast<float>(static_cast<std::int8_t>(sc[l / 16 + 2 * i]));
        y[l + 32 * i] = d * s * static_cast<float>(q[i]);
      }
    }
  }
}

// Where the float16 numbers of a block are.
std::vector<int> halves_of(BlockType type) {
  switch (type) {
    case BlockType::kQ5_1:
    case BlockType::kQ4_K:
    case BlockType::kQ5_K:
      return {0, 2};
    case BlockType::kQ2_K:
      return {80, 82};
    case BlockType::kQ3_K:
      return {108};
    case BlockType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

template <class Format>
class GgmlStoredBlocks : public ::testing::Test {};
using Formats = ::testing::Types<Q5_0Blocks, Q5_1Blocks, Q2_KBlocks, Q3_KBlocks, Q4_KBlocks,
                                 Q5_KBlocks, Q6_KBlocks>;
TYPED_TEST_SUITE(GgmlStoredBlocks, Formats);

// Random bytes, whose scales are small, usual, the largest, denormal, zero, infinite and NaN.
TYPED_TEST(GgmlStoredBlocks, AreDecodedBitByBit) {
  constexpr std::uint16_t kScales[] = {0x211F, 0xA8E3, 0x3C00, 0x7BFF, 0xFBFF, 0x0001,
                                       0x83FF, 0x0000, 0x8000, 0x7C00, 0xFE01};
  constexpr int kBlocks = 2000, kBytes = TypeParam::kBytes, kElements = TypeParam::kElements;
  std::mt19937 random(5);
  std::vector<std::uint8_t> blocks(kBlocks * kBytes);
  for (std::uint8_t& byte : blocks) byte = static_cast<std::uint8_t>(random());
  for (int b = 0; b < kBlocks; ++b) {
    for (const int at : halves_of(TypeParam::kType)) {
      put_half(blocks.data() + b * kBytes + at, kScales[random() % std::size(kScales)]);
    }
  }
  std::vector<float> x(kBlocks * kElements), expected(x.size());
  run(DecodeBlocks<TypeParam>{.n = kBlocks, .blocks = blocks.data(), .x = x.data()});
  std::size_t numbers = 0;
  for (int b = 0; b < kBlocks; ++b) {
    plain(TypeParam(), blocks.data() + b * kBytes, expected.data() + b * kElements);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool same = std::memcmp(&x[i], &expected[i], sizeof(float)) == 0;
    ASSERT_TRUE(same || (x[i] != x[i] && expected[i] != expected[i])) << i;
    numbers += static_cast<std::size_t>(x[i] == x[i]);
  }
  EXPECT_GT(numbers, x.size() / 2);
}

TYPED_TEST(GgmlStoredBlocks, HaveTheSizesOfTheTable) {
  EXPECT_EQ(ggml_type(TypeParam::kType).bytes, TypeParam::kBytes);
  EXPECT_EQ(ggml_type(TypeParam::kType).elements, TypeParam::kElements);
}

}  // namespace
}  // namespace steelyard::kernels::ggml_stored_blocks_test
