// The rules of quantizers' state against the definitions of NUMERICS in the library's functions.
#include "kernels/quantizer_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/quantizer_rules.h"

namespace steelyard::kernels {
namespace {

TEST(QuantizerRules, ExponentialIsTheLibrarysWithinTwoUnits) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-745, 0);
  for (int i = 0; i < 1000000; ++i) {
    const double x = i % 2 == 0 ? uniform(random) : uniform(random) / 700;
    const double want = std::exp(x);
    const double unit = std::nextafter(want, INFINITY) - want;
    ASSERT_LE(std::abs(exp_of_negative(x) - want), 2 * unit) << x;
  }
  EXPECT_EQ(exp_of_negative(0), 1);
  EXPECT_EQ(exp_of_negative(-1e300), 0);
  EXPECT_EQ(exp_of_negative(-INFINITY), 0);
}

TEST(QuantizerRules, PowersOfTwoAreTheSmallestThatAreNoSmaller) {
  for (int e = -300; e <= 300; e += 7) {
    const double power = std::ldexp(1.0, e);
    EXPECT_EQ(power_of_two_above(power), power);
    EXPECT_EQ(power_of_two_above(std::nextafter(power, INFINITY)), 2 * power);
    EXPECT_EQ(power_of_two_above(std::nextafter(power, 0.0)), power);
  }
}

// s_w = 2^ceil(log2(|b| / (s_x 2^20))) of dead weights; every s_w >= |b| / (s_x 2^30), and both it
// and s_x * s_w are normal.
TEST(QuantizerState, WeightScalesCarryTheirBias) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> bias{0, 3, -3, 1e8F, nan, -INFINITY, 5e-7F, -2};
  const std::vector<std::uint8_t> dead{1, 1, 0, 0, 1, 0, 1, 0};
  for (const float sx : {0.02F, 3e-37F, 70.0F}) {
    std::vector<float> scale(8, 0.03125F), floor(8);
    fit_weight_scales(8, bias.data(), &sx, 8, dead.data(), scale.data(), floor.data());
    std::vector<float> product(8);
    std::vector<std::int32_t> codes(8);
    std::int64_t non_finite = 0;
    quantize_biases(8, bias.data(), &sx, 8, scale.data(), product.data(), codes.data(),
                    &non_finite);
    EXPECT_EQ(non_finite, 2);
    for (std::size_t o = 0; o < 8; ++o) {
      const bool finite = std::isfinite(bias[o]);
      const double b = finite ? std::abs(static_cast<double>(bias[o])) : 0;
      const double least = std::max({b / (sx * 0x1p30), 0x1p-126 / sx, 0x1p-126});
      const double own =
          dead[o] != 0 && b > 0 ? std::exp2(std::ceil(std::log2(b / (sx * 0x1p20)))) : 0.03125;
      EXPECT_GE(floor[o], least) << o;
      EXPECT_NEAR(floor[o] / least, 1, 1e-6) << o;
      EXPECT_NEAR(scale[o] / std::max(own, least), 1, 1e-6) << o;
      EXPECT_GE(product[o], std::numeric_limits<float>::min()) << o;
      EXPECT_EQ(product[o], sx * scale[o]) << o;
      EXPECT_LE(std::abs(codes[o]), 1 << 30) << o;
      EXPECT_NEAR(codes[o] * static_cast<double>(product[o]), finite ? bias[o] : 0,
                  0.51 * static_cast<double>(product[o]) + 1e-7 * b)
          << o;
    }
  }
}

TEST(QuantizerState, OneScaleServesTheLargestBias) {
  const std::vector<float> bias{1, -7, std::numeric_limits<float>::quiet_NaN(), 2};
  const float sx = 0.5F;
  const std::uint8_t dead = 1;
  float scale = 1, floor = 0;
  fit_weight_scales(4, bias.data(), &sx, 1, &dead, &scale, &floor);
  EXPECT_EQ(scale, 0x1p-16F) << "14 / 2^20 rounded up to a power of two";
  scale = 1;
  fit_weight_scales(4, nullptr, &sx, 1, &dead, &scale, nullptr);
  EXPECT_EQ(scale, 1);
  std::vector<float> product(4);
  quantize_biases(4, nullptr, &sx, 1, &scale, product.data(), nullptr, nullptr);
  EXPECT_EQ(product, std::vector<float>(4, 0.5F));
}

TEST(QuantizerState, RangesFollowTheirSteps) {
  const float inf = INFINITY;
  std::vector<float> lo{inf, inf, -1}, hi{-inf, -inf, 2}, mean_lo = lo, mean_hi = hi;
  const std::vector<float> step_lo{-2, inf, -3}, step_hi{1, -inf, 1};
  update_extremes(3, step_lo.data(), step_hi.data(), lo.data(), hi.data());
  EXPECT_EQ(lo, (std::vector<float>{-2, inf, -3}));
  EXPECT_EQ(hi, (std::vector<float>{1, -inf, 2}));
  std::vector<std::int64_t> steps(3, 0);  // the third channel's average counted none
  update_average_extremes(3, 0.25, step_lo.data(), step_hi.data(), mean_lo.data(), mean_hi.data(),
                          steps.data());
  EXPECT_EQ(mean_lo, (std::vector<float>{-2, inf, -1.5F}));
  EXPECT_EQ(mean_hi, (std::vector<float>{1, -inf, 1.75F}));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 0, 0}));
  std::vector<float> scale(3);
  std::vector<std::int32_t> zero(3);
  std::vector<std::uint8_t> flags(3);
  qparams_of_ranges(3, {-127, 127}, true, lo.data(), hi.data(), scale.data(), zero.data(),
                    flags.data());
  EXPECT_EQ(scale, (std::vector<float>{2.0F / 127, 1, 3.0F / 127}));
  EXPECT_EQ(flags, (std::vector<std::uint8_t>{0, 1, 0}));
}

// Weights 1, 1/2, 1/3, 1/4 and from there the constant; a step without finite values is none.
TEST(QuantizerState, AveragesStartAsTheMean) {
  float lo = INFINITY, hi = -INFINITY;
  std::int64_t steps = 0;
  const float none_lo = INFINITY, none_hi = -INFINITY;
  const float want_lo[] = {-8, -6, -4, -3, -2.25F, -3.6875F};
  const float step_lo[] = {-8, -4, 0, 0, 0, -8};
  for (int i = 0; i < 6; ++i) {
    const float step_hi = -2 * step_lo[i];
    update_average_extremes(1, 0.25, &none_lo, &none_hi, &lo, &hi, &steps);
    update_average_extremes(1, 0.25, &step_lo[i], &step_hi, &lo, &hi, &steps);
    EXPECT_EQ(lo, want_lo[i]);
    EXPECT_EQ(hi, -2 * want_lo[i]);
    EXPECT_EQ(steps, std::min(i + 1, 4));
  }
}

TEST(QuantizerState, LatentsThatAreNotFiniteLeaveTheirScale) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> latent{0.5F, nan, 0.05F, 0.2F}, initial(4, 0.1F), floor(4, 0.0F),
      zero_latent{3.5F, 1, INFINITY, -9};
  std::vector<float> scale(4, 7);
  std::vector<std::int32_t> zero(4, 7);
  std::int64_t non_finite = 0;
  follow_latents(4, {0, 15}, latent.data(), initial.data(), floor.data(), zero_latent.data(),
                 scale.data(), zero.data(), &non_finite, nullptr, nullptr);
  EXPECT_EQ(non_finite, 2);
  EXPECT_EQ(scale[0], 0.5F);
  EXPECT_EQ(scale[1], 7);
  EXPECT_FLOAT_EQ(scale[2], 0.1F * std::exp(-0.5F));
  EXPECT_EQ(zero, (std::vector<std::int32_t>{4, 7, 7, 0}));
  std::vector<float> grad(4, 2);
  chain_latent_gradient(4, scale.data(), initial.data(), grad.data());
  EXPECT_EQ(grad[0], 2);
  EXPECT_FLOAT_EQ(grad[2], 2 * std::exp(-0.5F));
}

TEST(QuantizerState, AnotherWidthKeepsTheRange) {
  float scale = 0.01F;
  std::int32_t zero = 170;
  rescale_qparams(1, {0, 255}, {0, 15}, false, &scale, &zero);
  EXPECT_FLOAT_EQ(scale, 0.17F);
  EXPECT_EQ(zero, 10);
}

}  // namespace
}  // namespace steelyard::kernels
