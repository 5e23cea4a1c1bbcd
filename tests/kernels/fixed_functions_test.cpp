// Functions in fixed point against gemmlowp's, on which TFLite Micro's are built, where its headers
// are installed, and against the functions themselves. That whole operations give TFLite Micro's
// codes: tests/export/check_tflite.py.
#include "steelyard/kernels/fixed_functions.h"

#include <gtest/gtest.h>

#if __has_include(<gemmlowp/fixedpoint/fixedpoint.h>)
#define STEELYARD_HAVE_GEMMLOWP
#include <gemmlowp/fixedpoint/fixedpoint.h>
#endif

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace steelyard::kernels::fixed_functions_test {
namespace {

constexpr double kOne = 2147483648.0;

#ifdef STEELYARD_HAVE_GEMMLOWP
TEST(FixedFunctions, HaveTheBitsOfGemmlowps) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto any = static_cast<std::int32_t>(random());
    const std::int32_t below = i == 0 ? 0 : -static_cast<std::int32_t>(random() >> (1 + i % 30));
    const auto share = static_cast<std::int32_t>(random() >> (1 + i % 30));
    ASSERT_EQ(fixed_exp_of_negative(below, 4),
              exp_on_negative_values(gemmlowp::FixedPoint<std::int32_t, 4>::FromRaw(below)).raw())
        << below;
    ASSERT_EQ(fixed_exp_of_negative(below, 5),
              exp_on_negative_values(gemmlowp::FixedPoint<std::int32_t, 5>::FromRaw(below)).raw())
        << below;
    ASSERT_EQ(fixed_logistic(any),
              logistic(gemmlowp::FixedPoint<std::int32_t, 4>::FromRaw(any)).raw())
        << any;
    ASSERT_EQ(fixed_tanh(any), tanh(gemmlowp::FixedPoint<std::int32_t, 4>::FromRaw(any)).raw())
        << any;
    ASSERT_EQ(
        fixed_inverse_of_one_plus(share),
        one_over_one_plus_x_for_x_in_0_1(gemmlowp::FixedPoint<std::int32_t, 0>::FromRaw(share))
            .raw())
        << share;
  }
}
#endif

TEST(FixedFunctions, ComputeWhatTheirNamesSay) {
  for (int i = 0; i < 4000; ++i) {
    const double x = i / 4000.0 * 15.9;
    const auto raw = static_cast<std::int32_t>(x * (1 << 27));
    EXPECT_NEAR(fixed_exp_of_negative(-raw, 4) / kOne, std::exp(-x), 1e-6) << x;
    EXPECT_NEAR(fixed_logistic(raw) / kOne, 1 / (1 + std::exp(-x)), 1e-6) << x;
    EXPECT_NEAR(fixed_logistic(-raw) / kOne, 1 / (1 + std::exp(x)), 1e-6) << x;
    EXPECT_NEAR(fixed_tanh(raw) / kOne, std::tanh(x), 1e-6) << x;
    EXPECT_NEAR(fixed_tanh(-raw) / kOne, -std::tanh(x), 1e-6) << x;
    EXPECT_NEAR(fixed_inverse_of_one_plus(static_cast<std::int32_t>(i / 4000.0 * kOne)) / kOne,
                1 / (1 + i / 4000.0), 1e-6);
  }
}

// Of such scales many products lie between two codes: the factors decide, which are made in double.
TEST(FixedFunctions, HaveFactorsOfDoubles) {
  const float in = 0.00748940557F, out = 0.00449364353F, slope = 0.3F;
  const Rounding rounding = Rounding::kFixedTwice;
  const FixedLeakyRelu factors = make_fixed_leaky_relu(in, slope, out, rounding);
  EXPECT_EQ(factors.identity, make_fixed_multiplier(double{in} / double{out}, rounding));
  EXPECT_EQ(factors.slope,
            make_fixed_multiplier(double{in} * double{slope} / double{out}, rounding));
  EXPECT_NE(factors.identity, make_fixed_multiplier(double{in / out}, rounding));
}

// The codes of the functions are those of exact values, or one off.
TEST(FixedFunctions, GiveCodesNextToTheExactOnes) {
  const Rounding rounding = Rounding::kFixedTwice;
  for (const float scale : {0.002F, 0.03F, 0.11F, 0.7F}) {
    const FixedInput input = make_fixed_logistic(scale, rounding);
    const float out = 0.9F * scale;
    const FixedHardSwish swish = make_fixed_hard_swish(scale, out, rounding);
    ASSERT_TRUE(has_fixed_hard_swish(scale, out));
    for (int x = -255; x <= 255; ++x) {
      const double real = x * static_cast<double>(scale);
      EXPECT_NEAR(fixed_logistic_code(x, input, rounding),
                  std::min(256 / (1 + std::exp(-real)) - 128, 127.0), 1)
          << scale << " * " << x;
      EXPECT_NEAR(fixed_tanh_code(x, input, rounding), 128 * std::tanh(real), 1)
          << scale << " * " << x;
      const double gate = std::fmin(std::fmax(real + 3, 0), 6) / 6;
      EXPECT_NEAR(fixed_hard_swish(x, swish), real * gate / static_cast<double>(out), 1.01)
          << scale << " * " << x;
    }
  }
}

TEST(FixedFunctions, SharesOfARowAreThoseOfItsExponentials) {
  std::mt19937 random(1);
  for (const auto rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    for (int row = 0; row < 200; ++row) {
      const float scale = 0.01F * static_cast<float>(1 + row % 30);
      const FixedInput input = make_fixed_softmax(scale, rounding);
      std::vector<int> codes(2 + random() % 40);
      for (int& code : codes) code = static_cast<int>(random() % 256) - 128;
      const int largest = *std::max_element(codes.begin(), codes.end());
      std::int32_t sum = 0;
      double real_sum = 0;
      for (const int code : codes) {
        sum += fixed_softmax_term(fixed_softmax_exp(code - largest, input, rounding));
        real_sum += std::exp((code - largest) * static_cast<double>(scale));
      }
      const FixedShare share = make_fixed_share(sum);
      for (const int code : codes) {
        const std::int32_t exponential = fixed_softmax_exp(code - largest, input, rounding);
        const double real = std::exp((code - largest) * static_cast<double>(scale)) / real_sum;
        EXPECT_NEAR(fixed_share_code(exponential, share), 256 * real - 128, 0.51);
      }
    }
  }
}

// Every input of 16 bits; the entries of the table have 16 bits, and lines between them err less.
TEST(FixedFunctions, Of16BitsAreNearTheExactOnes) {
  for (std::int32_t x = -32768; x <= 32767; ++x) {
    const double real = x / 4096.0;
    ASSERT_NEAR(fixed_logistic_of_16_bits(x) / 32768.0, 1 / (1 + std::exp(-real)), 4e-5) << x;
    for (const int left : {0, 1}) {
      ASSERT_NEAR(fixed_tanh_of_16_bits(x, left) / 32768.0, std::tanh(real * (1 << left)), 8e-5)
          << x;
    }
  }
  EXPECT_EQ(fixed_logistic_of_16_bits(0), 1 << 14);
  EXPECT_EQ(fixed_tanh_of_16_bits(0, 1), 0);
}

// The product of two scales is exact: of these it is no float, and TFLite Micro's cells tell.
TEST(FixedFunctions, AnLstmMultipliesScalesInDouble) {
  const float in = 0.0123456F, weight = 0.00345679F;
  const auto exact =
      make_fixed_multiplier(double{in} * double{weight} * 4096, Rounding::kFixedTwice);
  const FixedLstm rule = make_fixed_lstm(in, weight, in, weight, 0, Rounding::kFixedTwice);
  EXPECT_EQ(rule.of_input, exact);
  EXPECT_EQ(rule.of_state, exact);
  EXPECT_NE(exact, make_fixed_multiplier(double{in * weight} * 4096, Rounding::kFixedTwice));
}

// A unit's step is that of real numbers, but for the rounding of each of its values.
TEST(FixedFunctions, AStepOfAnLstmIsNearTheExactOne) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const float in = 0.02F, weight = 0.004F, recurrent = 0.006F, scale = 1.0F / 120;
  std::mt19937 random(1);
  const auto pick = [&](int most) { return static_cast<int>(random() % (2 * most + 1)) - most; };
  for (const auto rounding : {Rounding::kFixedTwice, Rounding::kFixedOnce}) {
    const FixedLstm rule = make_fixed_lstm(in, weight, recurrent, scale, -7, rounding);
    for (int i = 0; i < 4000; ++i) {
      std::int32_t of_input[4], of_state[4];
      double sums[4];
      for (int gate = 0; gate < 4; ++gate) {
        of_input[gate] = pick(i % 2 == 0 ? 30000 : 90000);  // up to 7.2
        of_state[gate] = pick(40000);
        const double sum = of_input[gate] * double{in} * double{weight} +
                           of_state[gate] * double{scale} * double{recurrent};
        sums[gate] = std::fmin(std::fmax(sum, -8), 8);
      }
      const std::int32_t before = pick(32768 / (1 + i % 3));
      const double kept = sigmoid(sums[2]) * before / 2048;
      const double cell =
          std::fmin(std::fmax(kept + sigmoid(sums[0]) * std::tanh(sums[3]), -16), 16);
      const FixedLstmUnit unit = fixed_lstm_unit(rule, of_input, of_state, before, rounding);
      ASSERT_NEAR(unit.cell / 2048.0, cell, 0.003);
      ASSERT_NEAR((unit.code + 7) * double{scale}, sigmoid(sums[1]) * std::tanh(cell), 0.008);
    }
  }
}

TEST(FixedFunctions, SayWhichScalesTheyTake) {
  EXPECT_TRUE(has_fixed_input(0.1F, kLogisticBits));
  EXPECT_FALSE(has_fixed_input(0x1p-28F, kLogisticBits));
  EXPECT_FALSE(has_fixed_input(100, kLogisticBits));
  EXPECT_FALSE(has_fixed_hard_swish(1, 0.001F));
  EXPECT_FALSE(has_fixed_hard_swish(0.001F, 1));
}

}  // namespace
}  // namespace steelyard::kernels::fixed_functions_test
