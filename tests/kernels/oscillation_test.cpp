#include "steelyard/kernels/oscillation/oscillation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace steelyard::kernels {
namespace {

struct Weights {
  explicit Weights(std::size_t n) : code(n), direction(n), frequency(n), mean(n), frozen(n) {}
  OscillationState state() {
    return {code.data(), direction.data(), frequency.data(), mean.data(), frozen.data()};
  }
  std::vector<std::int8_t> code, direction;
  std::vector<float> frequency, mean;
  std::vector<std::uint8_t> frozen;
};

// The definition, from the whole history of one weight's codes: in step t the weight oscillates
// when its code changed in t, and the change before that had the other sign.
struct ExpectedWeight {
  double frequency = 0, mean = 0;
  int frozen_at = 0;
  bool frozen = false;
};
ExpectedWeight by_definition(const std::vector<int>& codes, double momentum, double freeze_above) {
  ExpectedWeight r{.mean = static_cast<double>(codes[0])};
  for (std::size_t t = 1; t < codes.size(); ++t) {
    const int change = codes[t] - codes[t - 1];
    int before = 0;
    for (std::size_t k = t - 1; k >= 1 && before == 0; --k) before = codes[k] - codes[k - 1];
    const bool oscillates = change != 0 && before != 0 && (change > 0) != (before > 0);
    r.frequency = momentum * oscillates + (1 - momentum) * r.frequency;
    r.mean = momentum * codes[t] + (1 - momentum) * r.mean;
    if (r.frequency > freeze_above) {
      r.frozen = true;
      r.frozen_at = static_cast<int>(std::nearbyint(r.mean));
      return r;
    }
  }
  return r;
}

TEST(Oscillations, FollowTheDefinition) {
  constexpr std::size_t kWeights = 300, kSteps = 60;
  std::mt19937 generator(5);
  std::vector<std::vector<int>> histories(kWeights);
  for (std::size_t i = 0; i < kWeights; ++i) {
    int code = static_cast<int>(generator() % 7) - 3;
    for (std::size_t t = 0; t < kSteps; ++t) {
      if (generator() % 100 < i / 3) code += static_cast<int>(generator() % 3) - 1;
      histories[i].push_back(code);
    }
  }
  for (const double threshold : {std::numeric_limits<double>::infinity(), 0.12}) {
    Weights weights(kWeights);
    for (std::size_t t = 0; t < kSteps; ++t) {
      std::vector<std::int8_t> codes;
      for (const auto& h : histories) codes.push_back(static_cast<std::int8_t>(h[t]));
      if (t == 0) {
        run(BeginOscillations{kWeights, codes.data(), weights.state()});
      } else {
        const auto above = static_cast<float>(threshold);
        run(TrackOscillations{kWeights, codes.data(), 0.05F, &above, weights.state()});
      }
    }
    int frozen = 0, oscillating = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
      const ExpectedWeight expected = by_definition(histories[i], 0.05, threshold);
      ASSERT_NEAR(weights.frequency[i], expected.frequency, 1e-6) << i;
      ASSERT_NEAR(weights.mean[i], expected.mean, 1e-5) << i;
      ASSERT_EQ(weights.frozen[i], expected.frozen) << i;
      EXPECT_EQ(weights.code[i], expected.frozen ? expected.frozen_at : histories[i].back()) << i;
      frozen += expected.frozen;
      oscillating += !expected.frozen && expected.frequency > 0.03;
    }
    std::int64_t counts[2] = {-1, -1};
    run(CountOscillations{kWeights, 0.03F, weights.state(), counts});
    EXPECT_EQ(counts[0], frozen);
    EXPECT_EQ(counts[1], oscillating);
    EXPECT_GT(oscillating, 20);
    EXPECT_EQ(frozen > 20, std::isfinite(threshold)) << frozen;
  }
}

// Central differences of lambda * sum (s * (code - z) - clip(x))^2, the codes held.
TEST(Oscillations, DampingGradientMatchesFiniteDifferences) {
  const CodeRange range{-8, 7};
  const ChannelLayout layout{1, 3, 40};
  const std::vector<double> scale{0.1, 0.25, 1};
  const std::vector<std::int32_t> zero_point{0, 3, -8};
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> uniform(-1.5, 1.5);
  std::vector<double> x, grad(120, 0.5);
  std::vector<std::int8_t> codes;
  for (std::size_t i = 0; i < 120; ++i) {
    x.push_back(uniform(generator));
    codes.push_back(static_cast<std::int8_t>(
        quantize_value(x[i], make_code_grid(range, scale[i / 40], zero_point[i / 40]))));
  }
  const double lambda = 0.3;
  run(AddDampingGradient<double>{layout, range, &lambda, x.data(), scale.data(), zero_point.data(),
                                 codes.data(), grad.data()});
  int clipped = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double s = scale[i / 40];
    const double z = zero_point[i / 40];
    const double lowest = s * (range.qmin - z), highest = s * (range.qmax - z);
    const auto loss = [&](double value) {
      const double inside = std::min(std::max(value, lowest), highest);
      return 0.3 * (s * (codes[i] - z) - inside) * (s * (codes[i] - z) - inside);
    };
    const double difference = (loss(x[i] + 1e-6) - loss(x[i] - 1e-6)) / 2e-6;
    EXPECT_NEAR(grad[i], 0.5 + difference, 1e-8) << i;
    clipped += x[i] < lowest || x[i] > highest;
  }
  EXPECT_GT(clipped, 5);
}

// Not even the sign of a zero.
TEST(Oscillations, ALambdaOfZeroLeavesGradientsAlone) {
  const double lambda = 0, x[] = {0.3, NAN}, scale = 0.25;
  const std::int8_t codes[] = {1, 0};
  double grad[] = {-0.0, 0.5};
  run(AddDampingGradient<double>{{1, 1, 2}, {-8, 7}, &lambda, x, &scale, nullptr, codes, grad});
  EXPECT_TRUE(std::signbit(grad[0]));
  EXPECT_EQ(grad[1], 0.5);
}

TEST(Oscillations, FrozenWeightsAreHeld) {
  Weights weights(4);
  weights.code = {3, -2, 1, 0};
  weights.frozen = {1, 0, 0, 1};
  std::vector<float> x{9, 9, 9, 9}, grad{1, 2, 3, 4};
  const std::vector<float> scale{0.5F, 0.25F};
  run(HoldFrozen{{1, 2, 2}, weights.state(), scale.data(), nullptr, x.data(), grad.data()});
  EXPECT_EQ(x, (std::vector<float>{1.5F, 9, 9, 0}));
  EXPECT_EQ(grad, (std::vector<float>{0, 2, 3, 0}));
  const std::vector<std::int32_t> zero_point{-1, 4};
  run(HoldFrozen{{1, 2, 2}, weights.state(), scale.data(), zero_point.data(), x.data(), nullptr});
  EXPECT_EQ(x, (std::vector<float>{2, 9, 9, -1}));
}

}  // namespace
}  // namespace steelyard::kernels
