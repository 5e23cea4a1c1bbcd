#include "steelyard/qat/ptq/bit_allocation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace steelyard::qat {
namespace {

using Layers = std::vector<std::vector<WidthChoice>>;

// The best of all combinations, tried one by one.
std::optional<Allocation> brute_force(const Layers& layers, std::int64_t budget) {
  std::optional<Allocation> best;
  std::vector<std::size_t> choice(layers.size(), 0);
  for (;;) {
    Allocation tried{choice, 0, 0};
    for (std::size_t i = 0; i < layers.size(); ++i) {
      tried.cost += layers[i][choice[i]].cost;
      tried.error += layers[i][choice[i]].error;
    }
    const bool better = !best || tried.error < best->error ||
                        (tried.error == best->error && tried.cost < best->cost);
    if (tried.cost <= budget && better) best = tried;
    std::size_t i = 0;
    while (i < layers.size() && ++choice[i] == layers[i].size()) choice[i++] = 0;
    if (i == layers.size()) return best;
  }
}

// Errors are whole numbers, so that sums are exact in every order; small ones, so that ties occur.
Layers random_layers(std::mt19937& random) {
  const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Layers layers(static_cast<std::size_t>(up_to(7)));
  for (auto& choices : layers) {
    choices.resize(static_cast<std::size_t>(1 + up_to(4)));
    for (WidthChoice& choice : choices) choice = {up_to(30), up_to(40) - 5.0};
  }
  return layers;
}

TEST(BitAllocation, IsTheBestOfAllCombinations) {
  std::mt19937 random(1);
  int possible = 0;
  for (int i = 0; i < 3000; ++i) {
    const Layers layers = random_layers(random);
    const auto budget = static_cast<std::int64_t>(random() % 120);
    const auto expected = brute_force(layers, budget);
    const auto found = allocate_widths(layers, budget);
    ASSERT_EQ(found.has_value(), expected.has_value());
    if (!expected) continue;
    ++possible;
    EXPECT_EQ(found->error, expected->error);
    EXPECT_EQ(found->cost, expected->cost);
    Allocation again;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      again.cost += layers[l][found->choice[l]].cost;
      again.error += layers[l][found->choice[l]].error;
    }
    EXPECT_EQ(again.cost, found->cost);
    EXPECT_EQ(again.error, found->error);
  }
  EXPECT_GT(possible, 1000);
}

// Where the choice by slope alone fails: the steep step leaves no room for the large one.
TEST(BitAllocation, IsNotGreedy) {
  const Layers layers{{{0, 10}, {6, 1}}, {{0, 20}, {10, 6}}};
  const auto found = allocate_widths(layers, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->choice, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(found->error, 16);
}

// A hundred layers of 25 million weights: what no table over all budgets would hold.
TEST(BitAllocation, ManyLayers) {
  std::mt19937 random(2);
  Layers layers;
  std::int64_t weights = 0;
  for (int i = 0; i < 100; ++i) {
    const auto size = static_cast<std::int64_t>(1000 + random() % 500'000);
    weights += size;
    std::vector<WidthChoice> choices;
    for (const int bits : {8, 4, 3, 2}) {
      const double noise = std::ldexp(1 + static_cast<double>(random() % 1000), -2 * bits);
      choices.push_back({size * bits, noise});
    }
    layers.push_back(choices);
  }
  const auto found = allocate_widths(layers, weights * 4);
  ASSERT_TRUE(found);
  EXPECT_LE(found->cost, weights * 4);
  EXPECT_GT(found->cost, weights * 399 / 100);
  double uniform = 0;
  for (const auto& choices : layers) uniform += choices[1].error;
  EXPECT_LT(found->error, uniform);
}

TEST(BitAllocation, Limits) {
  const Layers layers{{{8, 1}, {4, 2}}, {{16, 1}, {8, 2}}};
  EXPECT_FALSE(allocate_widths(layers, 11));
  EXPECT_EQ(allocate_widths(layers, 12)->choice, (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(allocate_widths(layers, INT64_MAX)->choice, (std::vector<std::size_t>{0, 0}));
  EXPECT_EQ(allocate_widths({}, 0)->choice.size(), 0U);
  EXPECT_THROW(allocate_widths({{}}, 1), std::invalid_argument);
  EXPECT_THROW(allocate_widths({{{-1, 1}}}, 1), std::invalid_argument);
  EXPECT_THROW(allocate_widths({{{1, std::numeric_limits<double>::quiet_NaN()}}}, 1),
               std::invalid_argument);
}

}  // namespace
}  // namespace steelyard::qat
