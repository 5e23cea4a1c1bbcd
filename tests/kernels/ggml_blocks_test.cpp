// ggml's blocks against a plain definition, written from the description of the types, in double
// where that is exact and otherwise by search.
#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace steelyard::kernels::ggml_blocks_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <class Format>
std::vector<std::uint8_t> encoded(const std::vector<float>& x, const float* scales = nullptr) {
  const auto n = static_cast<std::int64_t>(x.size()) / Format::kElements;
  std::vector<std::uint8_t> blocks(n * Format::kBytes);
  run(EncodeBlocks<Format>{.n = n, .x = x.data(), .scales = scales, .blocks = blocks.data()});
  return blocks;
}

template <class Format>
std::vector<float> decoded(const std::vector<std::uint8_t>& blocks) {
  const auto n = static_cast<std::int64_t>(blocks.size()) / Format::kBytes;
  std::vector<float> x(n * Format::kElements);
  run(DecodeBlocks<Format>{.n = n, .blocks = blocks.data(), .x = x.data()});
  return x;
}

// Normal values, values on grids (so that there are ties), sparse blocks, zeros and blocks of every
// magnitude.
std::vector<float> many_values(std::int64_t blocks) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const int kind = static_cast<int>(b % 6);
    const float size = std::ldexp(1.0F, kind == 3 ? static_cast<int>(random() % 60) - 50 : 0);
    for (int j = 0; j < 64; ++j) {
      float value = normal(random) * size;
      if (kind == 1) value = std::rint(value * 4) / 4;
      if (kind == 2) value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
      if (kind == 4 && random() % 8 != 0) value = 0;
      x.push_back(kind == 5 && b % 12 == 5 ? 0.0F : value);
    }
  }
  return x;
}

float largest_of(const float* x, int n) {
  const float* found =
      std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  return *found;
}

float half(float value) { return widen(narrow<Half>(value)); }
float inverse(float d) { return d != 0 ? 1 / d : 0; }

// f(values of a block, the block) for each.
template <class Format, class F>
void each_block(const std::vector<float>& x, const std::vector<std::uint8_t>& blocks, const F& f) {
  for (std::size_t b = 0; b * Format::kElements < x.size(); ++b) {
    f(x.data() + b * Format::kElements, blocks.data() + b * Format::kBytes);
    if (::testing::Test::HasFailure()) return;
  }
}

constexpr std::int64_t kMany = 16'000;  // blocks of 64: a million values

TEST(GgmlBlocks, Q4_0IsItsDefinition) {
  const auto x = many_values(kMany);
  each_block<Q4_0Blocks>(x, encoded<Q4_0Blocks>(x), [](const float* v, const std::uint8_t* block) {
    const float d = largest_of(v, 32) / -8, by = inverse(d);
    EXPECT_EQ(Q4_0Blocks::scale_of(block), half(d));
    for (int j = 0; j < 32; ++j) {
      const int q = j < 16 ? block[2 + j] % 16 : block[2 + j - 16] / 16;
      const float product = v[j] * by;
      EXPECT_EQ(q, std::min(15, static_cast<int>(product + 8.5F))) << v[j];
      EXPECT_EQ(Q4_0Blocks::code(block, j), q - 8);
    }
  });
}

TEST(GgmlBlocks, Q4_1IsItsDefinition) {
  const auto x = many_values(kMany);
  const auto blocks = encoded<Q4_1Blocks>(x);
  const auto values = decoded<Q4_1Blocks>(blocks);
  std::size_t at = 0;
  each_block<Q4_1Blocks>(x, blocks, [&](const float* v, const std::uint8_t* block) {
    const float low = *std::min_element(v, v + 32), high = *std::max_element(v, v + 32);
    const float d = (high - low) / 15, by = inverse(d);
    for (int j = 0; j < 32; ++j) {
      const int q = j < 16 ? block[4 + j] % 16 : block[4 + j - 16] / 16;
      const float product = (v[j] - low) * by;
      EXPECT_EQ(q, std::min(15, static_cast<int>(product + 0.5F)));
      EXPECT_EQ(values[at++], static_cast<float>(q) * half(d) + half(low));
    }
  });
}

TEST(GgmlBlocks, Q8_0IsItsDefinition) {
  const auto x = many_values(kMany);
  each_block<Q8_0Blocks>(x, encoded<Q8_0Blocks>(x), [](const float* v, const std::uint8_t* block) {
    const float d = std::fabs(largest_of(v, 32)) / 127, by = inverse(d);
    EXPECT_EQ(Q8_0Blocks::scale_of(block), half(d));
    for (int j = 0; j < 32; ++j) {
      const double product = static_cast<double>(v[j] * by);
      const double rounded = std::copysign(std::floor(std::fabs(product) + 0.5), product);
      EXPECT_EQ(Q8_0Blocks::code(block, j), static_cast<int>(rounded)) << v[j];
    }
  });
}

TEST(GgmlBlocks, InputsAreThoseOfX86) {
  const auto x = many_values(kMany);
  each_block<InputBlocks>(
      x, encoded<InputBlocks>(x), [](const float* v, const std::uint8_t* block) {
        const float largest = std::fabs(largest_of(v, 32));
        const float factor = largest > 0 ? 127 / largest : 0;
        EXPECT_EQ(InputBlocks::scale_of(block), half(largest / 127));
        for (int j = 0; j < 32; ++j) {
          EXPECT_EQ(InputBlocks::code(block, j), static_cast<int>(std::nearbyint(v[j] * factor)));
        }
      });
  // Halves: to even here, away from zero in Q8_0.
  std::vector<float> ties(32, 0.0F);
  ties[0] = 127;
  ties[1] = 0.5F;
  ties[2] = -2.5F;
  EXPECT_EQ(InputBlocks::code(encoded<InputBlocks>(ties).data(), 1), 0);
  EXPECT_EQ(InputBlocks::code(encoded<InputBlocks>(ties).data(), 2), -2);
  EXPECT_EQ(Q8_0Blocks::code(encoded<Q8_0Blocks>(ties).data(), 1), 1);
  EXPECT_EQ(Q8_0Blocks::code(encoded<Q8_0Blocks>(ties).data(), 2), -3);
}

TEST(GgmlBlocks, Q2_0IsItsDefinition) {
  const auto x = many_values(kMany);
  each_block<Q2_0Blocks>(x, encoded<Q2_0Blocks>(x), [](const float* v, const std::uint8_t* block) {
    const float d = std::fabs(largest_of(v, 64));
    EXPECT_EQ(Q2_0Blocks::scale_of(block), half(d));
    for (int j = 0; j < 64; ++j) {
      const float by = v[j] * inverse(d);
      EXPECT_EQ(Q2_0Blocks::code(block, j), by <= -0.5F ? -1 : by >= 0.5F ? 1 : 0) << v[j];
      EXPECT_EQ(block[2 + j / 4] >> (j % 4 * 2) & 3, Q2_0Blocks::code(block, j) + 1);
    }
  });
}

TEST(GgmlBlocks, Mxfp4HasTheNearestNumbers) {
  const double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  const auto x = many_values(kMany);
  each_block<Mxfp4Blocks>(
      x, encoded<Mxfp4Blocks>(x), [&](const float* v, const std::uint8_t* block) {
        const float largest = std::fabs(largest_of(v, 32));
        const int e = largest > 0 ? static_cast<int>(std::floor(std::log2f(largest))) - 2 + 127 : 0;
        ASSERT_EQ(block[0], e);
        for (int j = 0; j < 32; ++j) {
          const double value = static_cast<double>(v[j]) / std::ldexp(1.0, e - 127);
          double least = 100;
          for (const double number : numbers) {
            least = std::min(least, std::fabs(std::fabs(value) - number));
          }
          const int q = j < 16 ? block[1 + j] % 16 : block[1 + j - 16] / 16;
          const double held = numbers[q % 8] * (q < 8 ? 1 : -1);
          EXPECT_EQ(std::fabs(value - held), least) << v[j];
          // Of two numbers as near the first, which is the smaller one; zero is positive.
          EXPECT_TRUE(q % 8 == 0 || std::fabs(std::fabs(value) - numbers[q % 8 - 1]) > least)
              << v[j];
          EXPECT_NE(q, 8);
          EXPECT_EQ(static_cast<double>(Mxfp4Blocks::code(block, j)), 2 * held);
        }
      });
}

// Just below a power of two ggml's logarithm in float32 is that of the power.
TEST(GgmlBlocks, Mxfp4sExponentIsThatOfAFloatLogarithm) {
  std::int64_t rounded_up = 0;
  for (int power = -120; power < 128; ++power) {
    float value = std::ldexp(1.0F, power);
    for (int below = 0; below < 120; ++below, value = std::nextafter(value, 0.0F)) {
      std::vector<float> x(32, 0.0F);
      x[3] = -value;
      const int e = encoded<Mxfp4Blocks>(x)[0];
      ASSERT_EQ(e, static_cast<int>(std::floor(std::log2f(value))) + 125) << value;
      rounded_up += below > 0 && e == power + 125;
    }
  }
  EXPECT_GT(rounded_up, 1000);
}

TEST(GgmlBlocks, Iq4NlHasTheNearestNumbersAndTheScaleOfLeastSquares) {
  const int numbers[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const auto x = many_values(kMany);
  each_block<Iq4NlBlocks>(
      x, encoded<Iq4NlBlocks>(x), [&](const float* v, const std::uint8_t* block) {
        const float extreme = largest_of(v, 32);
        if (std::fabs(extreme) < 1e-15F) {
          EXPECT_EQ(Iq4NlBlocks::scale_of(block), 0);
          return;
        }
        const float by = 1 / (extreme / -127);
        double with_x = 0, squares = 0;
        for (int j = 0; j < 32; ++j) {
          const float at = by * v[j];
          int best = numbers[15];
          for (int i = 15; i >= 0; --i) {  // of two as near the larger
            const auto off = [&](int n) { return std::fabs(at - static_cast<float>(n)); };
            if (off(numbers[i]) < off(best)) best = numbers[i];
          }
          EXPECT_EQ(Iq4NlBlocks::code(block, j), best) << at;
          const double weight = static_cast<double>(v[j]) * v[j];
          with_x += weight * best * v[j];
          squares += weight * best * best;
        }
        const double d = with_x / squares;
        EXPECT_NEAR(Iq4NlBlocks::scale_of(block), d, std::fabs(d) * 0x1p-10 + 0x1p-24);
      });
}

template <class Format>
void expect_nan_to_spread() {
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> x(3 * Format::kElements, 0.25F);
    x[Format::kElements + 5] = bad;
    x[Format::kElements + 6] = 3.0F;  // behind it
    const auto y = decoded<Format>(encoded<Format>(x));
    for (std::size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), i / Format::kElements == 1) << i;
    }
  }
}

TEST(GgmlBlocks, ABlockWithAValueThatIsNotFiniteIsNan) {
  expect_nan_to_spread<Q4_0Blocks>();
  expect_nan_to_spread<Q4_1Blocks>();
  expect_nan_to_spread<Q8_0Blocks>();
  expect_nan_to_spread<Iq4NlBlocks>();
  expect_nan_to_spread<Mxfp4Blocks>();
  expect_nan_to_spread<Q2_0Blocks>();
}

template <class Format>
void expect_zeros() {
  const auto blocks = encoded<Format>(std::vector<float>(Format::kElements, 0.0F));
  for (const float value : decoded<Format>(blocks)) EXPECT_EQ(value, 0.0F);
}

TEST(GgmlBlocks, ZerosStayZeros) {
  expect_zeros<F32Blocks>();
  expect_zeros<F16Blocks>();
  expect_zeros<BF16Blocks>();
  expect_zeros<Q4_0Blocks>();
  expect_zeros<Q4_1Blocks>();
  expect_zeros<Q8_0Blocks>();
  expect_zeros<Iq4NlBlocks>();
  expect_zeros<Mxfp4Blocks>();
  expect_zeros<Q2_0Blocks>();
}

// A given scale is rounded to what the block holds, and the codes are the nearest ones.
template <class Format>
void expect_nearest(float scale) {
  const auto x = many_values(60);
  const std::vector<float> scales(x.size() / Format::kElements, scale);
  const auto blocks = encoded<Format>(x, scales.data());
  each_block<Format>(x, blocks, [&](const float* v, const std::uint8_t* block) {
    const float held = Format::scale_of(block);
    EXPECT_NEAR(held, scale, std::fabs(scale) * 0x1p-11);
    std::vector<int> codes;  // every one, from blocks of all bytes
    for (int byte = 0; byte < 256; ++byte) {
      const std::vector<std::uint8_t> all(Format::kBytes, static_cast<std::uint8_t>(byte));
      codes.push_back(Format::code(all.data(), 0));
    }
    for (int j = 0; j < Format::kElements; ++j) {
      const auto off = [&](int code) { return std::fabs(double{v[j]} - code * double{held}); };
      const int best = *std::min_element(codes.begin(), codes.end(),
                                         [&](int a, int b) { return off(a) < off(b); });
      EXPECT_LE(off(Format::code(block, j)), off(best) * (1 + 1e-6) + 1e-12) << v[j];
    }
  });
}

TEST(GgmlBlocks, GivenScalesHaveTheNearestCodes) {
  expect_nearest<Q4_0Blocks>(0.217F);
  expect_nearest<Q4_0Blocks>(-0.125F);
  expect_nearest<Q8_0Blocks>(0.0117F);
  expect_nearest<Iq4NlBlocks>(0.0171F);
  expect_nearest<Mxfp4Blocks>(0.125F);
  expect_nearest<Q2_0Blocks>(0.83F);
}

template <class Format>
void expect_product(std::int64_t rows, std::int64_t columns, std::int64_t terms) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(rows * terms), w(columns * terms);
  for (float& value : x) value = normal(random);
  for (float& value : w) value = normal(random);
  const auto inputs = encoded<InputBlocks>(x);
  const auto weights = encoded<Format>(w);
  std::vector<float> y(rows * columns, kNan);
  run(BlockProduct<Format>{.rows = rows,
                           .columns = columns,
                           .terms = terms,
                           .inputs = inputs.data(),
                           .weights = weights.data(),
                           .y = y.data()});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::uint8_t* input = inputs.data() + i / columns * (terms / 32 * 34);
    const std::uint8_t* weight =
        weights.data() + i % columns * (terms / Format::kElements * Format::kBytes);
    float sum = 0;
    for (std::int64_t b = 0; b < terms / 32; ++b) {
      const std::int64_t first = b * 32 % Format::kElements;
      const std::uint8_t* of = weight + b * 32 / Format::kElements * Format::kBytes;
      int products = 0;
      for (int j = 0; j < 32; ++j) {
        products +=
            InputBlocks::code(input + b * 34, j) * Format::code(of, static_cast<int>(first) + j);
      }
      const float scale = InputBlocks::scale_of(input + b * 34) * Format::scale_of(of);
      const float term = scale * static_cast<float>(products);
      sum += term;
    }
    ASSERT_EQ(y[i], sum) << i;
  }
}

TEST(GgmlBlocks, ProductsAreExactBlocksTimesTheirScales) {
  for (const std::int64_t rows : {1, 5, 13}) {
    expect_product<Q4_0Blocks>(rows, 37, 192);
    expect_product<Q8_0Blocks>(rows, 64, 64);
    expect_product<Iq4NlBlocks>(rows, 3, 320);
    expect_product<Mxfp4Blocks>(rows, 17, 128);
    expect_product<Q2_0Blocks>(rows, 33, 256);
  }
  expect_product<Q4_0Blocks>(0, 8, 64);
  expect_product<Q4_0Blocks>(8, 0, 64);
}

TEST(GgmlBlocks, TypesAreInOrder) {
  for (std::size_t i = 1; i < kGgmlTypes.size(); ++i) {
    EXPECT_LT(kGgmlTypes[i - 1].id, kGgmlTypes[i].id);
  }
  EXPECT_EQ(ggml_type(Q2_0Blocks::kType).bytes, Q2_0Blocks::kBytes);
  EXPECT_EQ(ggml_type(Iq4NlBlocks::kType).elements, Iq4NlBlocks::kElements);
  EXPECT_EQ(find_ggml_type("mxfp4")->id, 39U);
  EXPECT_EQ(find_ggml_type(4), nullptr);
}

}  // namespace
}  // namespace steelyard::kernels::ggml_blocks_test
