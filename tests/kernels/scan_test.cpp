#include "steelyard/kernels/scan/scan.h"

#include "tests/kernels/float_support.h"

namespace steelyard::kernels {
namespace {

using test::random_values;

// Element by element, each sum from its beginning, in long double.
template <typename T>
void check_cumulative_sum(std::int64_t rows, std::int64_t columns, bool exclusive, bool reverse) {
  const auto x = random_values<T>(rows * columns, 6);
  std::vector<T> y(x.size(), T(99));
  run(CumulativeSum<T>{rows, columns, exclusive, reverse, x.data(), y.data()});
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      long double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        const bool before = reverse ? i > c : i < c;
        if (before || (i == c && !exclusive)) sum += x[r * columns + i];
      }
      const double spacing = std::numeric_limits<T>::epsilon();
      ASSERT_NEAR(y[r * columns + c], static_cast<double>(sum), spacing * (1 + std::abs(sum)))
          << r << ' ' << c;
    }
  }
}

TEST(CumulativeSum, MatchesTheDefinition) {
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      for (const auto& [rows, columns] :
           std::vector<std::pair<int, int>>{{1, 1}, {3, 2}, {129, 10}, {5, 1000}, {0, 4}}) {
        check_cumulative_sum<float>(rows, columns, exclusive, reverse);
        check_cumulative_sum<double>(rows, columns, exclusive, reverse);
      }
    }
  }
}

TEST(CumulativeSum, ANaNStaysWithTheSumsThatHaveItAndMayBeInPlace) {
  std::vector<float> x = {1, 2, NAN, 4, 1, 2, 3, 4};
  run(CumulativeSum<float>{2, 4, false, false, x.data(), x.data()});
  EXPECT_EQ(x[1], 3);
  EXPECT_TRUE(std::isnan(x[2]) && std::isnan(x[3]));
  EXPECT_EQ(x[7], 10);
}

}  // namespace
}  // namespace steelyard::kernels
