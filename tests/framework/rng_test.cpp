#include "steelyard/framework/tensor/rng.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "steelyard/kernels/philox.h"

namespace steelyard {
namespace {

using Block = std::array<std::uint32_t, 4>;

Block philox(const Block& counter, const std::array<std::uint32_t, 2>& key) {
  const kernels::PhiloxBlock block =
      kernels::philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return std::to_array(block.words);
}

// The known-answer vectors of Random123 1.14 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, WordsAreThePhiloxBlocksOfSeedAndStream) {
  const std::uint64_t seed = 0x0123456789abcdefu;
  const std::uint64_t stream = 0xfedcba9876543210u;
  Rng rng(seed, stream);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const Block words = philox({block, 0, 0x76543210, 0xfedcba98}, {0x89abcdef, 0x01234567});
    for (const std::uint32_t word : words) EXPECT_EQ(rng.next_u32(), word);
    EXPECT_EQ(rng.block(block), words);
  }
}

TEST(Rng, AStateContinuesExactly) {
  Rng rng(5, 6);
  for (int i = 0; i < 7; ++i) rng.next_u32();
  Rng copy(rng.state());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(copy.normal(), rng.normal());
    EXPECT_EQ(copy.below(1000), rng.below(1000));
  }
  EXPECT_EQ(copy.state(), rng.state());
}

TEST(Rng, SeedsAndStreamsDiffer) {
  Rng a(1, 0), b(2, 0), c(1, 1);
  const std::uint32_t first = a.next_u32();
  EXPECT_NE(first, b.next_u32());
  EXPECT_NE(first, c.next_u32());
}

TEST(Rng, SkippedBlocksAreNeverDrawnAgain) {
  Rng rng(1);
  rng.next_u32();
  EXPECT_EQ(rng.skip_blocks(2), 1u);
  EXPECT_EQ(rng.state().position, 12u);
  EXPECT_EQ(rng.skip_blocks(1), 3u);
  EXPECT_EQ(rng.next_u32(), rng.block(4)[0]);
}

// Blocks for kernels are those of the host, told by the stream of step 0 and where the step lies.
TEST(Rng, StepsHaveStreamsOfTheirOwn) {
  const Tensor step = Tensor::full({}, 7, DType::kI64);
  Rng of_step(3, 100, 7, step), plain(3, 107);
  EXPECT_EQ(of_step.state(), plain.state());
  EXPECT_EQ(of_step.block(5), plain.block(5));
  const Rng::Blocks blocks = of_step.take_blocks(4, {});
  EXPECT_EQ(blocks.stream + static_cast<std::uint64_t>(*blocks.step), 107u);
  EXPECT_EQ(blocks.first, 0u);
  EXPECT_FALSE(of_step.drew_fixed_numbers());
  const Rng::Blocks fixed = plain.take_blocks(4, {});
  EXPECT_EQ(fixed.stream, 107u);
  EXPECT_EQ(fixed.step, nullptr);
  EXPECT_TRUE(plain.drew_fixed_numbers());
  EXPECT_EQ(of_step.state(), plain.state());
  EXPECT_EQ(of_step.next_u32(), plain.next_u32());
  EXPECT_TRUE(of_step.drew_fixed_numbers());
}

// Memory of one device is nothing to kernels of another.
TEST(Rng, OtherDevicesGetTheStreamItself) {
  Rng rng(3, 100, 7, Tensor::full({}, 7, DType::kI64));
  const Rng::Blocks blocks = rng.take_blocks(1, {Device::Kind::kCuda, 0});
  EXPECT_EQ(blocks.stream, 107u);
  EXPECT_EQ(blocks.step, nullptr);
  EXPECT_TRUE(rng.drew_fixed_numbers());
}

TEST(Rng, PositionsBeyond32BitsUseTheSecondCounterWord) {
  Rng rng(Rng::State{1, 0, std::uint64_t{4} << 32});
  EXPECT_EQ(rng.next_u32(), philox({0, 1, 0, 0}, {1, 0})[0]);
}

// 5 standard errors: a false alarm in about 10^6 seeds, and the seed is fixed.
TEST(Rng, UniformHasTheRightMoments) {
  Rng rng(11);
  constexpr int kN = 200000;
  double sum = 0, squares = 0, lag = 0, previous = 0.5;
  for (int i = 0; i < kN; ++i) {
    const double u = rng.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += (u - 0.5) * (u - 0.5);
    lag += (u - 0.5) * (previous - 0.5);
    previous = u;
  }
  EXPECT_NEAR(sum / kN, 0.5, 5 * std::sqrt(1.0 / 12 / kN));
  EXPECT_NEAR(squares / kN, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kN));
  EXPECT_NEAR(lag / kN, 0.0, 5 * (1.0 / 12) / std::sqrt(kN));
}

TEST(Rng, BelowIsUniform) {
  for (const std::uint64_t n : {1ull, 2ull, 7ull, 10ull, 100ull}) {
    Rng rng(n);
    constexpr int kDraws = 100000;
    std::vector<int> counts(n);
    for (int i = 0; i < kDraws; ++i) ++counts.at(rng.below(n));
    double chi2 = 0;
    const double expected = static_cast<double>(kDraws) / static_cast<double>(n);
    for (const int c : counts) chi2 += (c - expected) * (c - expected) / expected;
    const double freedom = static_cast<double>(n - 1);
    EXPECT_LE(chi2, freedom + 5 * std::sqrt(2 * freedom)) << n;
  }
}

TEST(Rng, BelowReachesBothEndsOfLargeRanges) {
  Rng rng(3);
  const std::uint64_t n = (std::uint64_t{1} << 63) + 1;  // half of all words are rejected
  bool low = false, high = false;
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t value = rng.below(n);
    ASSERT_LT(value, n);
    low = low || value < n / 4;
    high = high || value > n - n / 4;
  }
  EXPECT_TRUE(low && high);
  EXPECT_THROW(rng.below(0), std::invalid_argument);
}

TEST(Rng, NormalHasTheRightMomentsAndTails) {
  Rng rng(12);
  constexpr int kN = 200000;
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < kN; ++i) {
    const double z = rng.normal();
    ASSERT_TRUE(std::isfinite(z));
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    beyond_two += std::abs(z) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kN, 0.0, 5 / std::sqrt(kN));
  EXPECT_NEAR(squares / kN, 1.0, 5 * std::sqrt(2.0 / kN));
  EXPECT_NEAR(fourth / kN, 3.0, 5 * std::sqrt(96.0 / kN));
  const double p = std::erfc(std::sqrt(2.0));  // P(|z| > 2)
  EXPECT_NEAR(static_cast<double>(beyond_two) / kN, p, 5 * std::sqrt(p * (1 - p) / kN));
}

}  // namespace
}  // namespace steelyard
