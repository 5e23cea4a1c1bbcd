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

}  // namespace
}  // namespace steelyard::kernels::cuda
