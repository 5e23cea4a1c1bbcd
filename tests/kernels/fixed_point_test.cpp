// The arithmetic of TFLite Micro against gemmlowp's, which it is built on, where its headers are
// installed, and against exact quotients; the kernels against scalar formulas. That whole
// operations give TFLite Micro's codes: tests/export/tflite_test.cpp.
#include <gtest/gtest.h>

#if __has_include(<gemmlowp/fixedpoint/fixedpoint.h>)
#define STEELYARD_HAVE_GEMMLOWP
#include <gemmlowp/fixedpoint/fixedpoint.h>
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/fixed_requantize/fixed_requantize.h"

namespace steelyard::kernels::fixed_point_test {
namespace {

using Wide = __int128;

// floor(a / b) for b > 0.
Wide floor_of(Wide a, Wide b) { return a / b - (a % b < 0 ? 1 : 0); }

// round(x * 2^-exponent), halves upwards.
std::int64_t half_up(Wide x, int exponent) {
  const Wide unit = Wide{1} << exponent;
  return static_cast<std::int64_t>(floor_of(2 * x + unit, 2 * unit));
}
// The same, halves away from 0.
std::int64_t half_away(Wide x, int exponent) {
  return x < 0 ? -half_up(-x, exponent) : half_up(x, exponent);
}

std::int32_t expected_product(std::int32_t x, FixedMultiplier by, Rounding rounding) {
  if (rounding == Rounding::kFixedOnce) {
    return static_cast<std::int32_t>(half_up(Wide{x} * by.multiplier, 31 - by.shift));
  }
  const Wide raised = by.shift > 0 ? Wide{x} << by.shift : Wide{x};
  const std::int64_t high = half_up(raised * by.multiplier, 31);
  return static_cast<std::int32_t>(by.shift < 0 ? half_away(high, -by.shift) : high);
}

// Values of every magnitude, ends included.
class Integers {
 public:
  explicit Integers(unsigned seed) : random_(seed) {}
  std::int32_t next() {
    constexpr std::int32_t kEnds[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT32_MIN + 1, 1 << 30};
    const auto bits = static_cast<std::uint32_t>(random_());
    if (bits % 64 < std::size(kEnds)) return kEnds[bits % 64];
    return static_cast<std::int32_t>(bits) >> (random_() % 32);
  }
  FixedMultiplier multiplier(std::int32_t largest_shift) {
    const auto value = static_cast<std::int32_t>((1U << 30) + (random_() & 0x3FFFFFFF));
    const auto range = static_cast<std::uint64_t>(largest_shift + 32);
    return {value, static_cast<std::int32_t>(random_() % range) - 31};
  }

 private:
  std::mt19937_64 random_;
};

TEST(FixedPoint, ProductsAreTheRoundedQuotients) {
  Integers integers(1);
  for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    for (int i = 0; i < 1000000; ++i) {
      const FixedMultiplier by = integers.multiplier(6);
      std::int32_t x = integers.next();
      if (by.shift > 0) x >>= by.shift + 1;  // what is shifted out is undefined there
      ASSERT_EQ(fixed_product(x, by, rounding), expected_product(x, by, rounding))
          << x << " by " << by.multiplier << ", " << by.shift;
    }
  }
}

TEST(FixedPoint, TwoRoundingsAreThoseOfGemmlowp) {
#ifdef STEELYARD_HAVE_GEMMLOWP
  Integers integers(2);
  for (int i = 0; i < 2000000; ++i) {
    const FixedMultiplier by = integers.multiplier(0);
    const std::int32_t x = integers.next();
    const std::int32_t expected = gemmlowp::RoundingDivideByPOT(
        gemmlowp::SaturatingRoundingDoublingHighMul(x, by.multiplier), -by.shift);
    ASSERT_EQ(fixed_product_twice(x, by), expected)
        << x << " by " << by.multiplier << ", " << by.shift;
  }
#else
  GTEST_SKIP() << "no headers of gemmlowp (Debian's libgemmlowp-dev)";
#endif
}

TEST(FixedPoint, MultipliersAreTheNearest) {
  using enum Rounding;
  EXPECT_EQ(make_fixed_multiplier(0.5, kFixedTwice), (FixedMultiplier{1 << 30, 0}));
  EXPECT_EQ(make_fixed_multiplier(1, kFixedTwice), (FixedMultiplier{1 << 30, 1}));
  EXPECT_EQ(make_fixed_multiplier(0.75, kFixedTwice), (FixedMultiplier{3 << 29, 0}));
  EXPECT_EQ(make_fixed_multiplier(0, kFixedTwice), FixedMultiplier{});
  // Rounded to the next power of two.
  EXPECT_EQ(make_fixed_multiplier(std::nextafter(1.0, 0.0), kFixedTwice),
            (FixedMultiplier{1 << 30, 1}));
  // A half of the last bit goes away from 0.
  EXPECT_EQ(make_fixed_multiplier(0.5 + 0x1p-32, kFixedTwice).multiplier, (1 << 30) + 1);
  EXPECT_EQ(make_fixed_multiplier(0x1p-32, kFixedTwice), (FixedMultiplier{1 << 30, -31}));
  EXPECT_EQ(make_fixed_multiplier(0x1.fffp-33, kFixedTwice), FixedMultiplier{});
  EXPECT_EQ(make_fixed_multiplier(0x1p30, kFixedOnce), (FixedMultiplier{INT32_MAX, 30}));
  EXPECT_EQ(make_fixed_multiplier(0x1p30, kFixedTwice), (FixedMultiplier{1 << 30, 31}));
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    const double factor = std::exp2(std::uniform_real_distribution<double>(-31, 10)(random));
    const auto [multiplier, shift] = make_fixed_multiplier(factor, kFixedTwice);
    ASSERT_LE(std::abs(std::ldexp(multiplier, shift - 31) / factor - 1), 0x1p-31) << factor;
  }
}

TEST(FixedPoint, ScalesAreMultipliedInDouble) {
  const float a = 0.1F, b = 0.3F;
  const auto factor = fixed_mul(a, b, 1, Rounding::kFixedTwice);
  EXPECT_EQ(factor, make_fixed_multiplier(double{a} * double{b}, Rounding::kFixedTwice));
  EXPECT_NE(factor, make_fixed_multiplier(double{a * b}, Rounding::kFixedTwice));
}

TEST(FixedPoint, ActivationsLeaveTheCodesThatTfliteLeaves) {
  constexpr CodeRange kWhole{-128, 127};
  const float scale = 6.0F / 100.5F;  // 6 is between two codes, at the same distance
  ASSERT_EQ(6.0F / scale, 100.5F);
  EXPECT_EQ(fixed_activation_code_range(Activation::kRelu6, kWhole, scale, -128),
            (CodeRange{-128, -27}));
  EXPECT_EQ(activation_code_range(Activation::kRelu6, kWhole, scale, -128), (CodeRange{-128, -28}));
  EXPECT_EQ(fixed_activation_code_range(Activation::kRelu, kWhole, 1e-9F, 5), (CodeRange{5, 127}));
  EXPECT_EQ(fixed_activation_code_range(Activation::kRelu6, kWhole, 1e-9F, 5), (CodeRange{5, 127}));
  EXPECT_EQ(fixed_activation_code_range(Activation::kNone, kWhole, scale, 5), kWhole);
}

TEST(FixedPoint, AveragesRoundHalvesAwayFromZero) {
  EXPECT_EQ(averaged_code(2, 4), 1);
  EXPECT_EQ(averaged_code(-2, 4), -1);
  EXPECT_EQ(averaged_code(1, 4), 0);
  EXPECT_EQ(averaged_code(-5, 3), -2);
  EXPECT_EQ(averaged_code(-4, 3), -1);
}

// --- the kernels

struct Sums {
  std::int64_t rows, channels;
  std::vector<std::int32_t> acc, bias;
  std::vector<float> weight_scale, product_scale;
  float in_scale = 0.02F;

  Sums(std::int64_t r, std::int64_t c) : rows(r), channels(c) {
    std::mt19937 random(static_cast<unsigned>(r * 31 + c));
    std::uniform_int_distribution<std::int32_t> sum(-60000, 60000);
    std::uniform_real_distribution<float> exponent(-12, -4);
    for (std::int64_t i = 0; i < r * c; ++i) acc.push_back(sum(random));
    for (std::int64_t i = 0; i < c; ++i) {
      bias.push_back(sum(random) / 4);
      weight_scale.push_back(std::exp2(exponent(random)));
      product_scale.push_back(in_scale * weight_scale.back());
    }
  }
};

// As a reader of docs would write it.
std::int32_t clamped(std::int64_t code, Activation activation, float scale, std::int32_t zero) {
  std::int64_t low = -128, high = 127;
  if (activation != Activation::kNone) low = std::max<std::int64_t>(low, zero);
  if (activation == Activation::kRelu6) {
    high = std::min<std::int64_t>(high, zero + std::lround(6.0F / scale));
  }
  return static_cast<std::int32_t>(std::min(high, std::max(low, code)));
}

bool passes(std::int64_t code, float real, Activation activation) {
  if (code < -128 || code > 127) return false;
  return activation == Activation::kNone ||
         (real > 0 && (activation == Activation::kRelu || real < 6));
}

void check_requantize(const Sums& of, Activation activation, bool with_bias, Rounding rounding) {
  const float scale = 0.05F;
  const std::int32_t zero = -7;
  const auto n = of.acc.size();
  std::vector<std::int32_t> multiplier(of.weight_scale.size()), shift(of.weight_scale.size());
  run(FixedMultipliers{.n = of.channels,
                       .scales = of.channels,
                       .rounding = rounding,
                       .in_scale = &of.in_scale,
                       .weight_scale = of.weight_scale.data(),
                       .scale = &scale,
                       .multiplier = multiplier.data(),
                       .shift = shift.data()});
  std::vector<std::int8_t> codes(n);
  std::vector<std::uint8_t> mask((n + 7) / 8, 0xFF);
  run(FixedRequantize{.op = {of.rows, of.channels, activation},
                      .rounding = rounding,
                      .acc = of.acc.data(),
                      .bias = with_bias ? of.bias.data() : nullptr,
                      .product_scale = of.product_scale.data(),
                      .multiplier = multiplier.data(),
                      .shift = shift.data(),
                      .scale = &scale,
                      .zero_point = &zero,
                      .range = {-128, 127},
                      .codes = codes.data(),
                      .mask = mask.data()});
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t c = i % static_cast<std::size_t>(of.channels);
    const std::int32_t sum = of.acc[i] + (with_bias ? of.bias[c] : 0);
    const FixedMultiplier by = make_fixed_multiplier(
        double{of.in_scale} * double{of.weight_scale[c]} / double{scale}, rounding);
    const std::int64_t code = std::int64_t{expected_product(sum, by, rounding)} + zero;
    ASSERT_EQ(codes[i], clamped(code, activation, scale, zero)) << "element " << i;
    const float real = static_cast<float>(sum) * of.product_scale[c];
    ASSERT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, passes(code, real, activation)) << i;
  }
  for (std::size_t i = n; i < 8 * mask.size(); ++i) ASSERT_EQ(mask[i / 8] >> (i % 8) & 1, 0);
}

TEST(FixedRequantize, AccumulatorsOfAnyShape) {
  for (const auto& [rows, channels] : {std::pair{1, 1}, {3, 5}, {7, 64}, {50, 33}, {5, 700}}) {
    const Sums sums(rows, channels);
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kRelu6}) {
      check_requantize(sums, activation, true, Rounding::kFixedTwice);
      check_requantize(sums, activation, false, Rounding::kFixedOnce);
    }
  }
}

TEST(FixedRequantize, SumsOfTwoTensors) {
  std::vector<std::int8_t> a, b;
  for (int i = -128; i < 128; ++i) {
    for (int k = -128; k < 128; ++k) {
      a.push_back(static_cast<std::int8_t>(i));
      b.push_back(static_cast<std::int8_t>(k));
    }
  }
  const auto n = std::ssize(a);
  const float scales[] = {0.037F, 0.0021F, 0.031F};
  const std::int32_t zeros[] = {-128, 11, -3};
  for (const Rounding rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    std::vector<std::int8_t> codes(a.size());
    std::vector<std::uint8_t> mask((a.size() + 7) / 8);
    run(FixedRequantizeAdd{.n = n,
                           .rounding = rounding,
                           .activation = Activation::kRelu,
                           .a = {a.data(), scales, zeros},
                           .b = {b.data(), scales + 1, zeros + 1},
                           .scale = scales + 2,
                           .zero_point = zeros + 2,
                           .range = {-128, 127},
                           .codes = codes.data(),
                           .mask = mask.data()});
    const double twice = 2 * double{scales[0]};
    const auto of_a = make_fixed_multiplier(double{scales[0]} / twice, rounding);
    const auto of_b = make_fixed_multiplier(double{scales[1]} / twice, rounding);
    const auto of_sum = make_fixed_multiplier(twice / (0x1p20 * double{scales[2]}), rounding);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::int32_t left = expected_product((a[i] - zeros[0]) * (1 << 20), of_a, rounding);
      const std::int32_t right = expected_product((b[i] - zeros[1]) * (1 << 20), of_b, rounding);
      const std::int64_t code = expected_product(left + right, of_sum, rounding) + zeros[2];
      ASSERT_EQ(codes[i], clamped(code, Activation::kRelu, scales[2], zeros[2]));
      const float real = static_cast<float>(a[i] - zeros[0]) * scales[0] +
                         static_cast<float>(b[i] - zeros[1]) * scales[1];
      ASSERT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, passes(code, real, Activation::kRelu));
    }
  }
}

TEST(FixedRequantize, Averages) {
  const float in_scale = 0.02F, scale = 0.013F;
  const std::int32_t zero = -20;
  for (const std::int64_t count : {1, 4, 49, 64}) {
    std::vector<std::int32_t> sums;
    for (std::int64_t s = -160 * count; s <= 160 * count; ++s) {
      sums.push_back(static_cast<std::int32_t>(s));
    }
    for (const auto kind : {Average::Kind::kGlobal, Average::Kind::kWindow}) {
      const bool window = kind == Average::Kind::kWindow;
      std::vector<std::int8_t> codes(sums.size());
      std::vector<std::uint8_t> mask((sums.size() + 7) / 8);
      run(FixedRequantizeAverage{.n = std::ssize(sums),
                                 .rounding = Rounding::kFixedTwice,
                                 .average = {kind, count},
                                 .sums = sums.data(),
                                 .in_scale = window ? &scale : &in_scale,
                                 .scale = &scale,
                                 .zero_point = &zero,
                                 .range = {-128, 127},
                                 .codes = codes.data(),
                                 .mask = mask.data()});
      FixedMultiplier mean =
          make_fixed_multiplier(double{in_scale} / double{scale}, Rounding::kFixedTwice);
      const int bits = std::ilogb(static_cast<double>(count));
      mean = {static_cast<std::int32_t>((std::int64_t{mean.multiplier} << bits) / count),
              mean.shift - bits};
      for (std::size_t i = 0; i < sums.size(); ++i) {
        std::int64_t code =
            std::int64_t{expected_product(sums[i], mean, Rounding::kFixedTwice)} + zero;
        if (window) {
          const std::int64_t raw = sums[i] + count * zero;
          code = std::lround(static_cast<double>(raw) / static_cast<double>(count));
        }
        ASSERT_EQ(codes[i], clamped(code, Activation::kNone, scale, zero)) << sums[i];
        ASSERT_EQ((mask[i / 8] >> (i % 8) & 1) != 0, code >= -128 && code <= 127);
      }
    }
  }
}

}  // namespace
}  // namespace steelyard::kernels::fixed_point_test
