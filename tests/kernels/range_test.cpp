#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/exponential.h"
#include "steelyard/kernels/histogram/formulas.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/reduce/reduce.h"

namespace steelyard::kernels {
namespace {

template <typename T>
std::vector<T> values(std::int64_t n, unsigned seed, bool with_special) {
  std::mt19937 random(seed);
  std::normal_distribution<T> normal(T(0.5), T(3));
  std::vector<T> x(static_cast<std::size_t>(n));
  for (T& value : x) value = normal(random);
  if (!with_special) return x;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T special[] = {kInfinity,  -T(0),
                       -kInfinity, std::numeric_limits<T>::quiet_NaN(),
                       T(0),       std::numeric_limits<T>::denorm_min()};
  for (std::size_t i = 0; i < x.size(); i += 29) x[i] = special[i / 29 % 6];
  return x;
}

template <typename T>
void check_min_max(const ChannelLayout& layout, const std::vector<T>& x) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  std::vector<T> lo(channels), hi(channels);
  std::vector<std::int64_t> skipped(channels, -1);
  run(MinMax<T>{layout, x.data(), lo.data(), hi.data(), skipped.data()});
  std::vector<T> want_lo(channels, std::numeric_limits<T>::infinity());
  std::vector<T> want_hi(channels, -std::numeric_limits<T>::infinity());
  std::vector<std::int64_t> want_skipped(channels, 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto c =
        static_cast<std::size_t>(static_cast<std::int64_t>(i) / layout.inner % layout.channels);
    if (!std::isfinite(x[i])) {
      ++want_skipped[c];
    } else {
      want_lo[c] = std::fmin(want_lo[c], x[i]);
      want_hi[c] = std::fmax(want_hi[c], x[i]);
    }
  }
  EXPECT_EQ(lo, want_lo);
  EXPECT_EQ(hi, want_hi);
  EXPECT_EQ(skipped, want_skipped);
  for (std::size_t c = 0; c < channels; ++c) {
    EXPECT_FALSE(lo[c] == 0 && std::signbit(lo[c]));
    EXPECT_FALSE(hi[c] == 0 && std::signbit(hi[c]));
  }
}

class MinMaxLayouts
    : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t, std::int64_t>> {};

using LayoutCase = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

std::string range_label(const ::testing::TestParamInfo<LayoutCase>& test) {
  const auto [outer, channels, inner] = test.param;
  return std::to_string(outer) + "x" + std::to_string(channels) + "x" + std::to_string(inner);
}

TEST_P(MinMaxLayouts, AgreesWithPlainLoops) {
  const auto [outer, channels, inner] = GetParam();
  const ChannelLayout layout{outer, channels, inner};
  const int threads = num_threads();
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    check_min_max(layout, values<float>(layout.size(), 1, false));
    check_min_max(layout, values<float>(layout.size(), 2, true));
    auto mostly_finite = values<float>(layout.size(), 4, false);
    if (!mostly_finite.empty()) mostly_finite[mostly_finite.size() / 2] = NAN;
    check_min_max(layout, mostly_finite);
    check_min_max(layout, values<double>(layout.size(), 3, true));
  }
  set_num_threads(threads);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MinMaxLayouts,
                         ::testing::Values(std::tuple{1, 1, 0}, std::tuple{1, 1, 1},
                                           std::tuple{1, 1, 100003}, std::tuple{7, 3, 0},
                                           std::tuple{30000, 3, 1}, std::tuple{900, 64, 1},
                                           std::tuple{40, 9, 49}, std::tuple{3, 11, 1000},
                                           std::tuple{2, 3, 30011}),
                         range_label);

TEST(Extremes, ZerosOfEitherSignGivePositiveZero) {
  for (const float first : {0.0F, -0.0F}) {
    const std::vector<float> x{first, -first, first};
    float lo = 1, hi = 1;
    run(MinMax<float>{ChannelLayout::per_tensor(3), x.data(), &lo, &hi, nullptr});
    EXPECT_EQ(std::bit_cast<std::uint32_t>(lo), 0U);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(hi), 0U);
  }
}

TEST(Extremes, NothingFiniteGivesAnEmptyRange) {
  const std::vector<float> x{NAN, INFINITY, -INFINITY};
  float lo = 1, hi = 1;
  std::int64_t skipped = 0;
  run(MinMax<float>{ChannelLayout::per_tensor(3), x.data(), &lo, &hi, &skipped});
  EXPECT_EQ(lo, INFINITY);
  EXPECT_EQ(hi, -INFINITY);
  EXPECT_EQ(skipped, 3);
}

// The bin by comparing against its edges, with no scaling.
std::int64_t bin_of(int exponent, std::int64_t bins, float x) {
  const long double width = std::ldexp(1.0L, exponent);
  std::int64_t low = 0;
  std::int64_t high = bins;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (static_cast<long double>(x) >= static_cast<long double>(middle - bins / 2) * width ? low
                                                                                        : high) =
        middle;
  }
  return low;
}

// A histogram of one channel.
struct Counted {
  Counted(int e, std::int64_t bins) : counts(static_cast<std::size_t>(bins), 0), exponent(e) {}

  ChannelHistograms histogram() {
    return {1, static_cast<std::int64_t>(counts.size()), counts.data(), &exponent, &lo, &hi};
  }
  void count(const std::vector<float>& x) {
    const auto n = static_cast<std::int64_t>(x.size());
    run(CountInHistograms{histogram(), ChannelLayout::per_tensor(n), x.data()});
  }

  std::vector<std::int64_t> counts;
  std::int32_t exponent;
  float lo = 0, hi = 0;
};

// The largest magnitude of the finite values.
float largest_of(const std::vector<float>& x) {
  float amax = 0;
  for (const float value : x) {
    if (std::isfinite(value)) amax = std::max(amax, std::abs(value));
  }
  return amax;
}

void check_histogram(const std::vector<float>& x, std::int64_t bins) {
  Counted counted(smallest_exponent(largest_of(x), bins), bins);
  std::vector<std::int64_t> want(static_cast<std::size_t>(bins), 0);
  for (const float value : x) {
    if (!std::isfinite(value)) continue;
    ++want[static_cast<std::size_t>(bin_of(counted.exponent, bins, value))];
  }
  counted.count(x);
  EXPECT_EQ(counted.counts, want);
}

TEST(Histogram, CountsEveryFiniteElementInItsBin) {
  const int threads = num_threads();
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    for (const std::int64_t bins : {2, 6, 2048, 8192}) {
      check_histogram(values<float>(200003, 1, true), bins);
    }
  }
  set_num_threads(threads);
}

TEST(Histogram, ConstantEmptyTinyAndHugeData) {
  check_histogram(std::vector<float>(1000, 0.0F), 2048);
  check_histogram(std::vector<float>(1000, -0.0F), 2048);
  check_histogram(std::vector<float>(1000, 1.0F), 2048);
  check_histogram(std::vector<float>(1000, -4.0F), 2048);
  check_histogram(std::vector<float>{}, 2048);
  const float most = std::numeric_limits<float>::max();
  check_histogram(std::vector<float>{most, -most, 1e-45F, -1e-45F, 0.0F, -1.0F}, 2048);
  check_histogram(std::vector<float>{most, -most, -1e-45F}, 2);
  check_histogram(std::vector<float>{1e-45F, -1e-45F, 1e-39F, -1e-39F}, 2048);
}

TEST(Histogram, ExponentIsTheSmallestThatCovers) {
  for (const std::int64_t bins : {2, 6, 10, 2048}) {
    for (const double amax : {1e-30, 0.3, 1.0, 3.999, 4.0, 4.001, 5.0, 1e30}) {
      const int exponent = smallest_exponent(amax, bins);
      const double half = static_cast<double>(bins / 2);
      EXPECT_LT(amax, half * std::ldexp(1.0, exponent)) << amax << " in " << bins;
      EXPECT_GE(amax, half * std::ldexp(1.0, exponent - 1)) << amax << " in " << bins;
    }
  }
  EXPECT_EQ(smallest_exponent(0.0, 2048), -126);
}

TEST(Histogram, GrowingEqualsCountingInTheWiderGrid) {
  for (const std::int64_t bins : {2, 6, 14, 2048}) {
    const std::vector<float> x = values<float>(5000, 7, false);
    const float amax = largest_of(x);
    const int exponent = smallest_exponent(amax, bins);
    for (const int doublings : {0, 1, 2, 5, 40}) {
      Counted grown(exponent, bins), direct(exponent + doublings, bins);
      grown.count(x);
      grown.lo = -amax;
      grown.hi = amax;
      const float step = std::ldexp(amax, doublings), least = -step;
      run(GrowHistograms{grown.histogram(), &least, &step});
      direct.count(x);
      EXPECT_EQ(grown.exponent, direct.exponent);
      EXPECT_EQ(grown.counts, direct.counts) << bins << " bins, " << doublings << " doublings";
    }
  }
}

// Steps of all sizes in any order: the histogram of each channel is that of all its values in the
// grid that its largest one needs.
TEST(Histogram, ChannelsGrowByThemselves) {
  for (const ChannelLayout& layout : {ChannelLayout{1, 1, 5000}, {1, 3, 40}, {3, 4, 700}}) {
    for (const std::int64_t bins : {2, 64, 1024}) {
      const auto channels = static_cast<std::size_t>(layout.channels);
      std::vector<std::int64_t> counts(channels * static_cast<std::size_t>(bins), 0);
      std::vector<std::int32_t> exponent(channels, 0);
      std::vector<float> lo(channels, INFINITY), hi(channels, -INFINITY), step_lo(channels),
          step_hi(channels);
      const ChannelHistograms histograms{layout.channels, bins,      counts.data(),
                                         exponent.data(), lo.data(), hi.data()};
      std::vector<std::vector<float>> seen(channels);
      for (const float size : {1e-3F, 5.0F, 0.2F, 3e4F, 1.0F}) {
        std::vector<float> x = values<float>(layout.size(), 3, false);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const std::size_t c = i / static_cast<std::size_t>(layout.inner) % channels;
          x[i] *= size * static_cast<float>(c + 1) / 8;
          if (i % 11 == 3) x[i] = i % 2 == 0 ? NAN : INFINITY;
          if (std::isfinite(x[i])) seen[c].push_back(x[i]);
        }
        run(MinMax<float>{layout, x.data(), step_lo.data(), step_hi.data(), nullptr});
        run(GrowHistograms{histograms, step_lo.data(), step_hi.data()});
        run(CountInHistograms{histograms, layout, x.data()});
        for (std::size_t c = 0; c < channels; ++c) {
          const auto [least, most] = std::minmax_element(seen[c].begin(), seen[c].end());
          EXPECT_EQ(lo[c], *least);
          EXPECT_EQ(hi[c], *most);
          const double amax = std::max(std::abs(*least), std::abs(*most));
          ASSERT_EQ(exponent[c], smallest_exponent(amax, bins)) << c;
          std::vector<std::int64_t> want(static_cast<std::size_t>(bins), 0);
          for (const float value : seen[c]) {
            ++want[static_cast<std::size_t>(bin_of(exponent[c], bins, value))];
          }
          const auto mine = counts.begin() + static_cast<std::ptrdiff_t>(c) * bins;
          EXPECT_TRUE(std::equal(want.begin(), want.end(), mine)) << bins << " bins, channel " << c;
        }
      }
    }
  }
}

// NaN and infinities in all places leave what was counted.
TEST(Histogram, AStepWithoutFiniteValuesChangesNothing) {
  std::vector<std::int64_t> counts(8, 3);
  std::int32_t exponent = -1;
  float lo = -1, hi = 1.5F;
  const ChannelHistograms histogram{1, 8, counts.data(), &exponent, &lo, &hi};
  const float x[] = {NAN, INFINITY, -INFINITY};
  float step_lo = 0, step_hi = 0;
  const ChannelLayout layout = ChannelLayout::per_tensor(3);
  run(MinMax<float>{layout, x, &step_lo, &step_hi, nullptr});
  run(GrowHistograms{histogram, &step_lo, &step_hi});
  run(CountInHistograms{histogram, layout, x});
  EXPECT_EQ(counts, std::vector<std::int64_t>(8, 3));
  EXPECT_EQ(exponent, -1);
  EXPECT_EQ(lo, -1);
  EXPECT_EQ(hi, 1.5F);
}

// Against the mathematical library's long double, around powers of two and at the counts and ratios
// of counts that entropies are made of.
TEST(NaturalLog, IsWithinThreeUnits) {
  std::mt19937_64 random(5);
  double worst = 0;
  const auto check = [&](double x) {
    const long double exact = std::log(static_cast<long double>(x));
    const double unit = std::nextafter(std::abs(static_cast<double>(exact)), INFINITY) -
                        std::abs(static_cast<double>(exact));
    const double error = static_cast<double>(std::abs(natural_log(x) - exact));
    worst = std::max(worst, error / unit);
    ASSERT_LE(error, 3 * unit) << x;
  };
  for (int i = 0; i < 300000; ++i) {
    check(static_cast<double>(random() % 100000 + 1));
    check(static_cast<double>(random() % 1000 + 1) / static_cast<double>(random() % 1000 + 1));
    check(std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52),
                     static_cast<int>(random() % 2044) - 1022));
    check(1 + (static_cast<double>(random() % 2001) - 1000) * 1e-9);
  }
  EXPECT_EQ(natural_log(1), 0);
  EXPECT_GT(worst, 0.4);
}

}  // namespace
}  // namespace steelyard::kernels
