#include "steelyard/kernels/cuda/divisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>

namespace steelyard::kernels::cuda {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

void expect_quotients(std::int64_t by, std::int64_t value) {
  const Divisor divisor(by);
  EXPECT_EQ(std::int64_t{divisor}, by);
  // Where the quotient changes, and around.
  const std::int64_t multiple = value / by * by;
  for (const std::int64_t n : {value, multiple, multiple - 1, multiple + by - 1}) {
    if (n >= 0) {
      EXPECT_EQ(divide(n, divisor), n / by) << n << " / " << by;
    }
  }
}

TEST(Divisor, GivesTheQuotientsOfSmallSizes) {
  for (std::int64_t by = 1; by <= 300; ++by) {
    for (std::int64_t n = 0; n <= 1000; ++n) {
      ASSERT_EQ(divide(n, Divisor(by)), n / by) << n << " / " << by;
    }
  }
}

TEST(Divisor, GivesTheQuotientsOfAnySize) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto some = [&] { return static_cast<std::int64_t>(random() >> (1 + random() % 62)); };
    const std::int64_t by = some() + 1;
    // A multiple may lie beyond the largest number.
    expect_quotients(by, std::min(some(), kLargest - by));
  }
}

TEST(Divisor, GivesTheQuotientsOfTheLargestNumbers) {
  for (int bit = 0; bit < 62; ++bit) {
    for (const std::int64_t by :
         {(std::int64_t{1} << bit) - 1, std::int64_t{1} << bit, (std::int64_t{1} << bit) + 1}) {
      if (by < 1) continue;
      EXPECT_EQ(divide(kLargest, Divisor(by)), kLargest / by) << by;
      expect_quotients(by, kLargest - by);
    }
  }
  EXPECT_EQ(divide(kLargest, Divisor(kLargest)), 1);
  EXPECT_EQ(divide(kLargest - 1, Divisor(kLargest)), 0);
}

TEST(SmallDivisor, GivesTheQuotientsBelowTwoTo31) {
  constexpr std::int32_t kLargest32 = std::numeric_limits<std::int32_t>::max();
  const auto expect = [](std::int32_t by, std::int64_t value) {
    const SmallDivisor divisor(by);
    EXPECT_EQ(std::int32_t{divisor}, by);
    for (const std::int64_t n : {value, value / by * by, value / by * by - 1}) {
      if (n < 0) continue;
      EXPECT_EQ(divide(static_cast<std::int32_t>(n), divisor), n / by) << n << " / " << by;
    }
  };
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto some = [&] { return static_cast<std::int32_t>(random() >> (1 + random() % 31)); };
    expect(std::max(1, some()), some());
  }
  for (int bit = 0; bit < 31; ++bit) {
    for (const std::int64_t by :
         {(std::int64_t{1} << bit) - 1, std::int64_t{1} << bit, (std::int64_t{1} << bit) + 1}) {
      if (by >= 1) expect(static_cast<std::int32_t>(by), kLargest32);
    }
  }
  expect(kLargest32, kLargest32);
  expect(kLargest32, kLargest32 - 1);
}

}  // namespace
}  // namespace steelyard::kernels::cuda
