// Blocks with searched scales against a plain definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/ggml_blocks/ggml_blocks.h"

namespace steelyard::kernels::ggml_searched_blocks_test {
namespace {

using Values = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

template <class Format>
Bytes encoded(const Values& x) {
  const auto n = static_cast<std::int64_t>(x.size()) / Format::kElements;
  Bytes blocks(n * Format::kBytes);
  run(EncodeBlocks<Format>{.n = n, .x = x.data(), .scales = nullptr, .blocks = blocks.data()});
  return blocks;
}

template <class Format>
Values decoded(const Bytes& blocks) {
  const auto n = static_cast<std::int64_t>(blocks.size()) / Format::kBytes;
  Values x(n * Format::kElements);
  run(DecodeBlocks<Format>{.n = n, .blocks = blocks.data(), .x = x.data()});
  return x;
}

// Normal values of usual and of every size, few large ones, equal ones, zeros.
Values many_values(std::int64_t blocks) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  Values x;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const auto kind = b % 5;
    const float size = std::ldexp(1.0F, kind == 1 ? static_cast<int>(random() % 250) - 130 : -5);
    for (int j = 0; j < 32; ++j) {
      float value = normal(random) * size;
      if (kind == 2 && random() % 16 != 0) value /= 64;
      if (kind == 3) value = std::rint(value * 64) / 64;
      x.push_back(kind == 4 && b % 10 == 4 ? 0.0F : value);
    }
  }
  return x;
}

double squared_error(const float* x, const float* y) {
  double sum = 0;
  for (int j = 0; j < 32; ++j) sum += std::pow(double{x[j]} - double{y[j]}, 2);
  return sum;
}

float half(float value) { return widen(narrow<Half>(value)); }

float error_of(const float* x, float d, const Values& codes) {
  float sum = 0;
  for (int j = 0; j < 32; ++j) {
    const float value = codes[j] * d;
    const float square = (value - x[j]) * (value - x[j]);
    sum += square;
  }
  return sum;
}

TEST(GgmlSearchedBlocks, Q4_0IsItsDefinition) {
  const Values x = many_values(20'000);
  const Bytes plain = encoded<Q4_0Blocks>(x), searched = encoded<SearchedQ4_0Blocks>(x);
  std::int64_t changed = 0;
  for (std::size_t b = 0; b * 32 < x.size(); ++b) {
    const float* v = x.data() + b * 32;
    const auto in_block = [&](const Bytes& blocks, int j) {
      return static_cast<float>(Q4_0Blocks::code(blocks.data() + b * 18, j));
    };
    float d = Q4_0Blocks::scale_of(plain.data() + b * 18);
    Values codes(32), y(32);
    for (int j = 0; j < 32; ++j) codes[j] = in_block(plain, j);
    const float extreme =
        *std::max_element(v, v + 32, [](float p, float q) { return std::fabs(p) < std::fabs(q); });
    const float inverse = extreme != 0 ? 1 / extreme : 0;
    for (int j = 0; j < 32; ++j) y[j] = v[j] * inverse;
    float least = error_of(v, d, codes);
    bool other = false;
    for (const float c : {-7.F, -7.75F, -8.F, -8.5F, -9.25F, 6.F, 7.F, 7.75F}) {
      float with_y = 0, squares = 0;
      Values tried(32);
      for (int j = 0; j < 32; ++j) {
        tried[j] = std::clamp(std::nearbyint(y[j] * c), -8.0F, 7.0F);
        const float product = tried[j] * y[j];
        with_y += product;
        squares += tried[j] * tried[j];
      }
      const float scale = half(extreme * (with_y / squares));
      const float error = error_of(v, scale, tried);
      if (!std::isfinite(inverse) || !(error < least)) continue;
      other = true;
      least = error;
      d = scale;
      codes = tried;
    }
    changed += other;
    ASSERT_EQ(Q4_0Blocks::scale_of(searched.data() + b * 18), d) << b;
    for (int j = 0; j < 32; ++j) ASSERT_EQ(in_block(searched, j), codes[j]) << b;
  }
  EXPECT_GT(changed, 10'000);
}

TEST(GgmlSearchedBlocks, Mxfp4HasTheBestOfThreeExponents) {
  Values x = many_values(20'000);
  std::fill_n(x.begin(), 31, 0.25F);  // what the extreme loses below is less than they win
  x[31] = 4;
  const Bytes plain = encoded<Mxfp4Blocks>(x), searched = encoded<SearchedMxfp4Blocks>(x);
  std::int64_t above = 0, below = 0;
  for (std::size_t b = 0; b * 32 < x.size(); ++b) {
    const float* v = x.data() + b * 32;
    const int reference = plain[b * 17];
    int best = reference;
    float least = std::numeric_limits<float>::infinity();
    for (const int e : {reference, reference + 1, reference - 1}) {
      if (e < 0 || e > 254) continue;
      Values codes(32);
      const float unit = std::ldexp(1.0F, e - 128);
      for (int j = 0; j < 32; ++j) {
        codes[j] = 0;
        for (const float number :
             {0.F, 1.F, 2.F, 3.F, 4.F, 6.F, 8.F, 12.F, -1.F, -2.F, -3.F, -4.F, -6.F, -8.F, -12.F}) {
          if (std::fabs(number * unit - v[j]) < std::fabs(codes[j] * unit - v[j]))
            codes[j] = number;
        }
      }
      const float error = error_of(v, unit, codes);
      if (e == reference || error < least) {
        best = e;
        least = error;
      }
    }
    ASSERT_EQ(searched[b * 17], best) << b;
    above += best > reference;
    below += best < reference;
  }
  EXPECT_GT(above, 1000);
  EXPECT_EQ(below, 1);
}

// No block is worse than the reference's, as a whole they are better, and what has been rounded to
// them stays.
template <class Plain, class Searched>
void expect_nearer(double most_of_plain) {
  const Values x = many_values(20'000);
  const Values plain = decoded<Plain>(encoded<Plain>(x));
  const Values searched = decoded<Plain>(encoded<Searched>(x));
  double of_plain = 0, of_searched = 0;
  for (std::size_t b = 0; b * 32 < x.size(); ++b) {
    if (b % 5 == 1) continue;  // of every size: they would be all of the sum
    const double before = squared_error(x.data() + b * 32, plain.data() + b * 32);
    const double after = squared_error(x.data() + b * 32, searched.data() + b * 32);
    ASSERT_LE(after, before * (1 + 1e-5)) << b;
    of_plain += before;
    of_searched += after;
  }
  EXPECT_LT(of_searched, most_of_plain * of_plain);
  const Values again = decoded<Plain>(encoded<Searched>(searched));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i / 32 % 5 != 1) {
      ASSERT_EQ(again[i], searched[i]) << i;
    }
  }
}

TEST(GgmlSearchedBlocks, AreNearerAndStay) {
  expect_nearer<Q4_0Blocks, SearchedQ4_0Blocks>(0.85);
  expect_nearer<Mxfp4Blocks, SearchedMxfp4Blocks>(0.97);
}

TEST(GgmlSearchedBlocks, TheSearchOfIq4NlIsNearer) {
  const Values x = many_values(5'000);
  const Values plain = decoded<Iq4NlBlocks>(encoded<Iq4NlBlocks>(x));
  const Values searched = decoded<Iq4NlBlocks>(encoded<SearchedIq4NlBlocks>(x));
  double of_plain = 0, of_searched = 0;
  for (std::size_t b = 0; b * 32 < x.size(); b += 5) {
    of_plain += squared_error(x.data() + b * 32, plain.data() + b * 32);
    of_searched += squared_error(x.data() + b * 32, searched.data() + b * 32);
  }
  EXPECT_LT(of_searched, 0.97 * of_plain);
}

template <class Plain, class Searched>
void expect_nan_to_spread() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    Values x(3 * 32, 0.25F);
    x[37] = bad;
    x[38] = 3.0F;
    const Values y = decoded<Plain>(encoded<Searched>(x));
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 32 == 1) << i;
  }
  EXPECT_EQ(decoded<Plain>(encoded<Searched>(Values(32))), Values(32));
}

TEST(GgmlSearchedBlocks, NanSpreadsAndZerosStay) {
  expect_nan_to_spread<Q4_0Blocks, SearchedQ4_0Blocks>();
  expect_nan_to_spread<Iq4NlBlocks, SearchedIq4NlBlocks>();
  expect_nan_to_spread<Mxfp4Blocks, SearchedMxfp4Blocks>();
}

}  // namespace
}  // namespace steelyard::kernels::ggml_searched_blocks_test
