// The next token by its logits.
#include "steelyard/recipes/text/generation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace steelyard {
namespace {

// Shares of 200,000 draws.
std::map<std::int64_t, double> shares_of(const std::vector<float>& logits,
                                         const SamplingOptions& options) {
  constexpr int kDraws = 200'000;
  Rng random(5);
  std::map<std::int64_t, double> shares;
  for (int i = 0; i < kDraws; ++i) shares[choose_token(logits, options, random)] += 1.0 / kDraws;
  return shares;
}

// Four deviations of a share of that many draws.
constexpr double kTolerance = 0.005;

const std::vector<float> kLogits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};

TEST(ChooseToken, TheLargestWithoutTemperature) {
  Rng random(1);
  EXPECT_EQ(choose_token(kLogits, {}, random), 1);
  EXPECT_EQ(choose_token(std::vector<float>{2, 7, 7, -1}, {}, random), 1) << "the lower of equals";
  EXPECT_EQ(choose_token(std::vector<float>{-3}, {}, random), 0);
}

TEST(ChooseToken, DrawsByProbability) {
  const auto shares = shares_of(kLogits, {.temperature = 1});
  const double expected[] = {0.1, 0.4, 0.2, 0.3};
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_NEAR(shares.at(i), expected[i], kTolerance) << i;
}

TEST(ChooseToken, TemperatureSharpensAndFlattens) {
  // p^2 and sqrt(p), by their sums.
  const auto sharp = shares_of(kLogits, {.temperature = 0.5});
  EXPECT_NEAR(sharp.at(1), 0.16 / 0.30, kTolerance);
  EXPECT_NEAR(sharp.at(0), 0.01 / 0.30, kTolerance);
  const auto flat = shares_of(kLogits, {.temperature = 2});
  const double sum = std::sqrt(0.1) + std::sqrt(0.4) + std::sqrt(0.2) + std::sqrt(0.3);
  EXPECT_NEAR(flat.at(2), std::sqrt(0.2) / sum, kTolerance);
}

TEST(ChooseToken, AmongTheLikeliest) {
  const auto two = shares_of(kLogits, {.temperature = 1, .top_k = 2});
  EXPECT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1), 0.4 / 0.7, kTolerance);
  const auto part = shares_of(kLogits, {.temperature = 1, .top_p = 0.75});  // 0.4 + 0.3 + 0.2
  EXPECT_EQ(part.size(), 3U);
  EXPECT_NEAR(part.at(3), 0.3 / 0.9, kTolerance);
  EXPECT_EQ(shares_of(kLogits, {.temperature = 1, .top_p = 0}).size(), 1U);
  const auto both = shares_of(kLogits, {.temperature = 1, .top_k = 3, .top_p = 0.7});
  EXPECT_EQ(both.size(), 2U) << "0.4 and 0.3 of 0.9 reach it";
}

TEST(ChooseToken, LargeLogitsDoNotOverflow) {
  const auto shares = shares_of({3e38F, -3e38F, 3e38F}, {.temperature = 1e-3});
  EXPECT_NEAR(shares.at(0), 0.5, kTolerance);
  EXPECT_FALSE(shares.contains(1));
  Rng random(1);
  EXPECT_THROW(
      choose_token(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, {}, random),
      std::invalid_argument);
}

}  // namespace
}  // namespace steelyard
