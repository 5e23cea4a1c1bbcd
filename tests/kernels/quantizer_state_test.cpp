// The rules of quantizers' state against the definitions of docs/numerics.md, in the library's
// functions.
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "steelyard/kernels/quantizer_state/formulas.h"

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

TEST(QuantizerState, RangesFollowTheirSteps) {
  const float inf = INFINITY;
  std::vector<float> lo{inf, inf, -1}, hi{-inf, -inf, 2}, mean_lo = lo, mean_hi = hi;
  const std::vector<float> step_lo{-2, inf, -3}, step_hi{1, -inf, 1};
  run(UpdateExtremes{3, 0, step_lo.data(), step_hi.data(), lo.data(), hi.data(), nullptr});
  EXPECT_EQ(lo, (std::vector<float>{-2, inf, -3}));
  EXPECT_EQ(hi, (std::vector<float>{1, -inf, 2}));
  std::vector<std::int64_t> steps(3, 0);  // the third channel's average counted none
  run(UpdateExtremes{3, 0.25, step_lo.data(), step_hi.data(), mean_lo.data(), mean_hi.data(),
                     steps.data()});
  EXPECT_EQ(mean_lo, (std::vector<float>{-2, inf, -1.5F}));
  EXPECT_EQ(mean_hi, (std::vector<float>{1, -inf, 1.75F}));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 0, 0}));
  std::vector<float> scale(3);
  std::vector<std::int32_t> zero(3);
  std::vector<std::uint8_t> flags(3);
  run(QparamsOfRanges<float>{
      3, {-127, 127}, true, lo.data(), hi.data(), scale.data(), zero.data(), flags.data()});
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
    run(UpdateExtremes{1, 0.25, &none_lo, &none_hi, &lo, &hi, &steps});
    run(UpdateExtremes{1, 0.25, &step_lo[i], &step_hi, &lo, &hi, &steps});
    EXPECT_EQ(lo, want_lo[i]);
    EXPECT_EQ(hi, -2 * want_lo[i]);
    EXPECT_EQ(steps, std::min(i + 1, 4));
  }
}

TEST(QuantizerState, LatentsThatAreNotFiniteLeaveTheirScale) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> latent{0.5F, nan, 0.05F, 0.2F}, initial(4, 0.1F), floor(4, 0.0F),
      offset{-1.75F, -1, INFINITY, 9};
  std::vector<float> scale(4, 7);
  std::vector<std::int32_t> zero(4, 7);
  std::int64_t non_finite = 0;
  run(FollowLatents{4,
                    {0, 15},
                    latent.data(),
                    initial.data(),
                    floor.data(),
                    offset.data(),
                    scale.data(),
                    zero.data(),
                    &non_finite,
                    nullptr,
                    nullptr});
  EXPECT_EQ(non_finite, 2);
  EXPECT_EQ(scale[0], 0.5F);
  EXPECT_EQ(scale[1], 7);
  EXPECT_FLOAT_EQ(scale[2], 0.1F * std::exp(-0.5F));
  EXPECT_EQ(zero, (std::vector<std::int32_t>{4, 7, 7, 0}));
  std::vector<float> grad(4, 2);
  run(ChainLatentGradients{
      4, {0, 15}, scale.data(), initial.data(), nullptr, nullptr, grad.data(), nullptr});
  EXPECT_EQ(grad[0], 2);
  EXPECT_FLOAT_EQ(grad[2], 2 * std::exp(-0.5F));
}

TEST(QuantizerState, LatentsBeginWhereTheParametersAre) {
  for (const CodeRange range : {CodeRange{0, 255}, CodeRange{-128, 127}, CodeRange{0, 3}}) {
    for (std::int32_t z = range.qmin; z <= range.qmax; ++z) {
      for (const float s : {0.1F, 3e-38F, 1.1e36F, 0.0123F}) {
        float scale = s, initial = 0, latent = 0, offset = 0;
        const float floor = 0;
        std::int32_t zero_point = z;
        run(BeginLatents{1, range, &scale, &zero_point, &initial, &latent, &offset});
        EXPECT_EQ(offset, (static_cast<float>(range.qmin - z)) * s);
        zero_point = 99;
        run(FollowLatents{1, range, &latent, &initial, &floor, &offset, &scale, &zero_point,
                          nullptr, nullptr, nullptr});
        EXPECT_EQ(scale, s);
        EXPECT_EQ(zero_point, z) << s;
      }
    }
  }
}

// The gradients of s * clamp(rint(x / s) + z) - s * z with z = qmin - offset / s, its rounding
// passed straight through: by finite differences of the same with a real z. Where no code can stand
// for the offset, z is held, and only a step back (against the gradient) has a gradient.
TEST(QuantizerState, LatentGradientsAreThoseOfTheMapping) {
  const CodeRange range{-8, 7};
  const float scale = 0.25F, initial = 0.2F;
  const double grad_y = 0.7;
  // A value that is clipped at the lowest code, and one at the highest.
  const auto loss = [&](double s, double offset, bool low) {
    const double z = range.qmin - offset / s;
    return grad_y * s * ((low ? range.qmin : range.qmax) - z);
  };
  for (const bool low : {true, false}) {
    for (const std::int32_t z : {-8, -3, 7}) {
      const float offset = offset_of(z, scale, range);
      const double step = 1e-6, s = scale;
      // What the kernels sum, with the zero point and with the scale held.
      const double held = (low ? range.qmin : range.qmax) - z;
      const LatentGradients got =
          latent_gradients(range, scale, initial, z, offset,
                           {static_cast<float>(grad_y * held), static_cast<float>(-grad_y * s)});
      const double of_scale =
          (loss(s + step, offset, low) - loss(s - step, offset, low)) / (2 * step);
      const double of_offset =
          (loss(s, offset + step, low) - loss(s, offset - step, low)) / (2 * step);
      EXPECT_NEAR(got.scale, of_scale, 1e-5) << z;
      EXPECT_NEAR(got.offset, of_offset, 1e-5) << z;
    }
  }
  for (const float offset : {0.3F, -4.4F}) {  // beyond [-3.75, 0]
    const std::int32_t z = offset > 0 ? -8 : 7;
    EXPECT_EQ(zero_point_of_offset(offset, scale, range), z);
    const float back = offset > 0 ? 1.0F : -1.0F;
    const LatentGradients leads_back =
        latent_gradients(range, scale, initial, z, offset, {2, -back * scale});
    EXPECT_EQ(leads_back.scale, 2);
    EXPECT_EQ(leads_back.offset, back);
    EXPECT_EQ(latent_gradients(range, scale, initial, z, offset, {2, back * scale}).offset, 0);
  }
}

TEST(QuantizerState, AnotherWidthKeepsTheRange) {
  float scale = 0.01F;
  std::int32_t zero = 170;
  run(RescaleQparams{1, {0, 255}, {0, 15}, false, &scale, &zero});
  EXPECT_FLOAT_EQ(scale, 0.17F);
  EXPECT_EQ(zero, 10);
}

}  // namespace
}  // namespace steelyard::kernels
