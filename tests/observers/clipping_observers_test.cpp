// percentile, mse and entropy against references written here from their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "steelyard/kernels/backend.h"
#include "steelyard/observers/entropy.h"
#include "steelyard/observers/moving_percentile.h"
#include "steelyard/observers/mse.h"
#include "steelyard/observers/percentile.h"
#include "steelyard/observers/registry.h"
#include "tests/observers/crafted.h"
#include "tests/observers/show.h"

namespace steelyard::observers {
namespace {

constexpr std::int64_t kSamples = 4000;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

QScheme scheme_of(int bits, bool symmetric) {
  return {.bits = bits, .is_signed = symmetric, .symmetric = symmetric, .narrow_range = symmetric};
}

void observe(Observer& observer, const std::vector<float>& values) {
  show(observer, kernels::ChannelLayout::per_tensor(static_cast<std::int64_t>(values.size())),
       values);
}

Range extremes(const std::vector<float>& values) {
  const auto [lo, hi] = std::minmax_element(values.begin(), values.end());
  return {*lo, *hi};
}

// numpy.percentile with its default interpolation.
double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const double rank = p / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (rank - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

Range reference_percentile(const std::vector<float>& values, double p, bool symmetric) {
  std::vector<double> x(values.begin(), values.end());
  Range range = {percentile(x, 100 - p), percentile(x, p)};
  if (symmetric) {
    for (double& v : x) v = std::abs(v);
    range = {-percentile(x, p), percentile(x, p)};
  }
  return range;
}

// The squared error of the grid that docs/numerics.md defines, in double but for its f32 scale.
double squared_error(const std::vector<float>& values, const Range& range, const QScheme& scheme) {
  const auto [qmin, qmax] = scheme.code_range();
  double scale = 1, zero = 0;
  if (range.lo != 0 || range.hi != 0) {
    const double lo = std::min(range.lo, 0.0), hi = std::max(range.hi, 0.0);
    scale =
        static_cast<float>(scheme.symmetric ? std::max(-lo, hi) / qmax : (hi - lo) / (qmax - qmin));
    zero = scheme.symmetric
               ? 0
               : std::clamp<double>(std::nearbyint(qmin - lo / ((hi - lo) / (qmax - qmin))), qmin,
                                    qmax);
  }
  double sum = 0;
  for (const float x : values) {
    const double code = std::clamp<double>(std::nearbyint(x / scale) + zero, qmin, qmax);
    sum += ((code - zero) * scale - x) * ((code - zero) * scale - x);
  }
  return sum;
}

// The loop of Migacz's slides, with the handling of zeros, empty bins and clipped values that
// kernels/histogram_ranges/clipping_divergence.h states.
class ReferenceEntropy {
 public:
  ReferenceEntropy(const std::vector<float>& values, const QScheme& scheme) : scheme_(scheme) {
    all_ = extremes(values);
    amax_ = std::max(std::abs(all_.lo), std::abs(all_.hi));
    constexpr int kHalf = static_cast<int>(EntropyObserver::kEntropyBins / 2);
    width_ = std::exp2(std::floor(std::log2(amax_)) + 1) / kHalf;
    counts_.assign(2 * kHalf, 0);
    zero_ = kHalf;
    for (const float x : values)
      ++counts_[static_cast<std::size_t>(std::floor(x / width_) + kHalf)];
    if (scheme.symmetric) {
      std::vector<double> magnitudes;
      for (int b = 0; b < kHalf; ++b) {
        magnitudes.push_back(counts_[kHalf + b] + counts_[kHalf - 1 - b]);
      }
      counts_ = magnitudes;
      zero_ = 0;
    }
    double neighbour = counts_[zero_ + 1];
    if (zero_ > 0) neighbour = std::max(neighbour, counts_[zero_ - 1]);
    if (all_.hi > 0 || scheme.symmetric) counts_[zero_] = std::min(counts_[zero_], neighbour);
    if (all_.hi <= 0 && !scheme.symmetric) counts_[zero_] = 0;
  }

  Range threshold(int reach) const {
    const double t = std::min(reach * width_, amax_);
    return scheme_.symmetric ? Range{-t, t} : Range{std::max(all_.lo, -t), std::min(all_.hi, t)};
  }

  int widest() const { return static_cast<int>(amax_ / width_) + 1; }

  double divergence(int reach) const {
    int first = zero_, last = zero_;
    if (scheme_.symmetric || all_.hi > 0) {
      last += std::min<int>(reach, scheme_.symmetric ? widest() : std::floor(all_.hi / width_) + 1);
    }
    if (!scheme_.symmetric && all_.lo < 0)
      first -= std::min<int>(reach, std::ceil(-all_.lo / width_));
    const auto [qmin, qmax] = scheme_.code_range();
    const int codes = scheme_.symmetric ? qmax + 1 : qmax - qmin + 1;
    const int bins = last - first;
    if (bins < codes) return kInfinity;
    std::vector<double> p(counts_.begin() + first, counts_.begin() + last);
    std::vector<double> sum(codes, 0), used(codes, 0), q(bins, 0);
    for (int b = 0; b < bins; ++b) {
      sum[b * codes / bins] += p[b];
      used[b * codes / bins] += p[b] > 0;
    }
    for (int b = 0; b < bins; ++b) {
      if (p[b] > 0) q[b] = sum[b * codes / bins] / used[b * codes / bins];
    }
    p.front() += std::accumulate(counts_.begin(), counts_.begin() + first, 0.0);
    p.back() += std::accumulate(counts_.begin() + last, counts_.end(), 0.0);
    const double p_sum = std::accumulate(p.begin(), p.end(), 0.0);
    double divergence = 0;
    for (int b = 0; b < bins; ++b) {
      divergence += ((p[b] > 0 ? p[b] * std::log(p[b] / q[b]) : 0) - p[b] + q[b]) / p_sum;
    }
    return std::isfinite(divergence) ? divergence : kInfinity;
  }

 private:
  QScheme scheme_;
  Range all_;
  double amax_ = 0, width_ = 0;
  int zero_ = 0;
  std::vector<double> counts_;
};

class Clipping : public ::testing::TestWithParam<std::tuple<std::size_t, int, bool>> {
 protected:
  std::vector<float> samples() const {
    return crafted_samples(kCrafted[std::get<0>(GetParam())], kSamples);
  }
  QScheme scheme() const { return scheme_of(std::get<1>(GetParam()), std::get<2>(GetParam())); }
};

TEST_P(Clipping, PercentileIsExactForOneStepAndWithinABinForSeveral) {
  for (const double p : {99.99, 99.0, 60.0, 100.0}) {
    PercentileObserver observer(1, scheme(), p);
    std::vector<float> seen = samples();
    observe(observer, seen);
    Range exact = reference_percentile(seen, p, scheme().symmetric);
    if (exact.lo == 0 && exact.hi == 0) {
      exact = extremes(seen);
      if (scheme().symmetric)
        exact = {-std::max(-exact.lo, exact.hi), std::max(-exact.lo, exact.hi)};
    }
    EXPECT_NEAR(observer.ranges()[0].lo, exact.lo, 1e-12);
    EXPECT_NEAR(observer.ranges()[0].hi, exact.hi, 1e-12);

    const std::vector<float> more = crafted_samples(kCrafted[std::get<0>(GetParam())], 1500, 4);
    observe(observer, more);
    seen.insert(seen.end(), more.begin(), more.end());
    const Range all = extremes(seen);
    const double bin = std::max(-all.lo, all.hi) / 512;
    const Range expected = reference_percentile(seen, p, scheme().symmetric);
    EXPECT_NEAR(observer.ranges()[0].lo, expected.lo, bin) << p;
    EXPECT_NEAR(observer.ranges()[0].hi, expected.hi, bin) << p;
  }
}

TEST_P(Clipping, MseFindsTheBestOfAllFactors) {
  const std::vector<float> values = samples();
  MseObserver observer(1, scheme(), 0.01);
  observe(observer, values);
  const Range all = extremes(values);
  double least = kInfinity;
  for (int percent = 100; percent >= 1; --percent) {
    const Range range{static_cast<float>(all.lo * percent / 100),
                      static_cast<float>(all.hi * percent / 100)};
    least = std::min(least, squared_error(values, range, scheme()));
  }
  const Range chosen = observer.ranges()[0];
  EXPECT_LE(squared_error(values, chosen, scheme()), least * (1 + 1e-5) + 1e-10);
  // The factors are the same for both ends.
  if (all.lo != 0 && all.hi != 0) {
    EXPECT_NEAR(chosen.lo / all.lo, chosen.hi / all.hi, 1e-6);
  }
}

TEST_P(Clipping, EntropyFindsTheLeastDivergence) {
  const std::vector<float> values = samples();
  EntropyObserver observer(1, scheme());
  observe(observer, values);
  const Range chosen = observer.ranges()[0];
  if (extremes(values) == Range{0, 0}) {
    EXPECT_EQ(chosen, (Range{0, 0}));
    return;
  }
  const ReferenceEntropy reference(values, scheme());
  double least = kInfinity;
  int best = reference.widest();
  for (int reach = best; reach >= 1; --reach) {
    const double divergence = reference.divergence(reach);
    if (divergence < least - 1e-12) {
      least = divergence;
      best = reach;
    }
  }
  EXPECT_EQ(chosen, reference.threshold(best)) << best << " " << least;
}

INSTANTIATE_TEST_SUITE_P(Crafted, Clipping,
                         ::testing::Combine(::testing::Range(std::size_t{0}, std::size(kCrafted)),
                                            ::testing::Values(8, 4, 2), ::testing::Bool()),
                         [](const auto& p) {
                           return std::string(kCrafted[std::get<0>(p.param)].name) + "_" +
                                  std::to_string(std::get<1>(p.param)) +
                                  (std::get<2>(p.param) ? "_symmetric" : "_affine");
                         });

// Values worked out by hand.
TEST(Percentile, OfFewValues) {
  PercentileObserver affine(1, scheme_of(8, false), 75);
  observe(affine, {5, 1, 3, 2, 4});
  EXPECT_EQ(affine.ranges()[0], (Range{2, 4}));
  PercentileObserver symmetric(1, scheme_of(8, true), 75);
  observe(symmetric, {5, -1, 3, -2, 4});
  EXPECT_EQ(symmetric.ranges()[0], (Range{-4, 4}));
}

TEST(Percentile, RejectsWhatLeavesNothing) {
  for (const double p : {50.0, 100.5, -1.0, std::nan("")}) {
    EXPECT_THROW(PercentileObserver(1, scheme_of(8, true), p), std::invalid_argument) << p;
  }
}

// The average of what `percentile` finds in each batch by itself.
TEST_P(Clipping, MovingPercentileAveragesExactPercentiles) {
  constexpr double kConstant = 0.25;
  MovingPercentileObserver observer(1, scheme(), 99, kConstant);
  double lo = 0, hi = 0;
  for (int step = 1; step <= 6; ++step) {
    const auto seed = static_cast<std::uint64_t>(step);
    const std::vector<float> values = crafted_samples(kCrafted[std::get<0>(GetParam())], 500, seed);
    observe(observer, values);
    PercentileObserver alone(1, scheme(), 99);
    observe(alone, values);
    const double weight = std::max(kConstant, 1.0 / step);
    lo += weight * (alone.ranges()[0].lo - lo);
    hi += weight * (alone.ranges()[0].hi - hi);
    EXPECT_NEAR(observer.ranges()[0].lo, lo, 1e-5 * std::abs(lo) + 1e-12) << step;
    EXPECT_NEAR(observer.ranges()[0].hi, hi, 1e-5 * std::abs(hi) + 1e-12) << step;
  }
}

// What the observer is for: `percentile` keeps the wide values of early steps in its histogram.
TEST(MovingPercentile, ForgetsWhatThePercentileOfEverythingKeeps) {
  MovingPercentileObserver moving(1, scheme_of(8, false), 99, 0.2);
  PercentileObserver all(1, scheme_of(8, false), 99);
  for (int step = 0; step < 60; ++step) {
    std::vector<float> values = crafted_samples(kCrafted[1], 400, static_cast<std::uint64_t>(step));
    for (float& x : values) x *= step < 2 ? 100 : 1;
    observe(moving, values);
    observe(all, values);
  }
  EXPECT_LT(moving.ranges()[0].hi, 0.2 * all.ranges()[0].hi);
}

TEST(MovingPercentile, AStepWithoutFiniteValuesIsNone) {
  MovingPercentileObserver observer(1, scheme_of(8, false), 75, 0.25);
  observe(observer, {5, 1, 3, 2, 4});
  EXPECT_EQ(observer.ranges()[0], (Range{2, 4}));
  observe(observer, {std::nanf(""), INFINITY});
  EXPECT_EQ(observer.ranges()[0], (Range{2, 4}));
  observe(observer, {9, 5, 7, 6, 8});
  EXPECT_EQ(observer.ranges()[0], (Range{4, 6})) << "the mean of two steps";
}

// Limits are the rows'.
TEST(Observers, OptionsOutOfTheirLimitsAreRefused) {
  const ObserverOptions defaults;
  std::size_t options = 0;
  for (const ObserverRow& row : observer_rows()) {
    for (const ObserverOption& option : row.options) {
      for (const double bad : {option.above, option.at_most * 1.01, std::nan("")}) {
        ObserverOptions wrong{.type = std::string(row.name)};
        wrong.*option.member = bad;
        EXPECT_THROW(make_observer(wrong, scheme_of(8, true), 1), std::invalid_argument)
            << row.name << " " << option.name << " " << bad;
      }
      EXPECT_GT(defaults.*option.member, option.above) << option.name;
      ++options;
    }
  }
  EXPECT_GE(options, 5U);
}

TEST(Mse, AveragesTheRangesOfSteps) {
  MseObserver observer(1, scheme_of(8, false), 0.25);
  observe(observer, {0, 4});
  observe(observer, {0, 8});
  EXPECT_EQ(observer.ranges()[0], (Range{0, 6}));
  observe(observer, {std::nanf(""), INFINITY});
  EXPECT_EQ(observer.ranges()[0], (Range{0, 6}));
}

// What the observers are for: an outlier does not cost the others their resolution.
TEST(Clipping, CutsOffAnOutlierAtFewBits) {
  const std::vector<float> values = crafted_samples(kCrafted[2], 20000);
  for (const char* name : {"percentile", "moving_percentile", "mse", "entropy"}) {
    auto observer = make_observer({.type = name, .percentile = 99.9}, scheme_of(4, true), 1);
    observe(*observer, values);
    EXPECT_LT(observer->ranges()[0].hi, 5.0) << name;
    EXPECT_GT(observer->ranges()[0].hi, 0.25) << name;
  }
}

// A threshold below nearly all values must not win because little is left to differ from.
TEST(Entropy, KeepsValuesThatAreAllAwayFromZero) {
  for (const std::size_t crafted : {10, 11}) {
    const std::vector<float> values = crafted_samples(kCrafted[crafted], kSamples);
    for (const int bits : {8, 4, 2}) {
      for (const bool symmetric : {true, false}) {
        EntropyObserver observer(1, scheme_of(bits, symmetric));
        observe(observer, values);
        const double hi = observer.ranges()[0].hi;
        const auto clipped =
            std::count_if(values.begin(), values.end(), [hi](float x) { return x > hi; });
        EXPECT_LT(clipped, kSamples / 20) << kCrafted[crafted].name << " " << bits;
      }
    }
  }
}

// One channel much larger than the others, one of zeros, one of NaN.
TEST(Clipping, ChannelsOfAllSizesKeepTheirOwnRange) {
  constexpr std::int64_t kPerChannel = 500;
  std::vector<float> values;
  for (const float factor : {1.0F, 1e6F, 0.0F, std::nanf("")}) {
    for (const float x : crafted_samples(kCrafted[1], kPerChannel)) values.push_back(factor * x);
  }
  for (const char* name : {"percentile", "moving_percentile", "mse", "entropy"}) {
    for (const bool symmetric : {true, false}) {
      auto observer = make_observer({.type = name}, scheme_of(4, symmetric), 4);
      EXPECT_EQ(show(*observer, {1, 4, kPerChannel}, values), kPerChannel) << name;
      const std::vector<Range> ranges = observer->ranges();
      EXPECT_NEAR(ranges[1].hi / ranges[0].hi, 1e6, 6e4) << name;
      EXPECT_EQ(ranges[2], (Range{0, 0})) << name;
      EXPECT_TRUE(ranges[3].empty()) << name;
      auto alone = make_observer({.type = name}, scheme_of(4, symmetric), 1);
      observe(*alone, {values.begin(), values.begin() + kPerChannel});
      EXPECT_EQ(ranges[0], alone->ranges()[0]) << name;
    }
  }
}

TEST(Clipping, TheSameForAnyNumberOfThreads) {
  const int before = kernels::num_threads();
  const std::vector<float> values = crafted_samples(kCrafted[1], 100000);
  for (const std::string& name : observer_names()) {
    for (const std::int64_t channels : {1, 3}) {
      std::vector<std::vector<Range>> ranges;
      for (const int threads : {1, 2}) {
        kernels::set_num_threads(threads);
        auto observer = make_observer({.type = name}, scheme_of(8, false), channels);
        for (int step = 0; step < 2; ++step) {
          show(*observer, {1, channels, 100000 / channels}, values);
        }
        ranges.push_back(observer->ranges());
      }
      EXPECT_EQ(ranges[0], ranges[1]) << name;
    }
  }
  kernels::set_num_threads(before);
}

TEST(Clipping, EmptyAndDenormalStepsAreHarmless) {
  for (const std::string& name : observer_names()) {
    for (const bool symmetric : {true, false}) {
      const QScheme scheme = scheme_of(8, symmetric);
      auto observer = make_observer({.type = name}, scheme, 1);
      observe(*observer, {});
      EXPECT_TRUE(observer->ranges()[0].empty()) << name;
      for (const float extreme : {1e-45F, 3e38F}) {
        observe(*observer, {extreme, -extreme / 2, 0.0F});
        const Range range = observer->ranges()[0];
        EXPECT_FALSE(range.empty()) << name;
        EXPECT_TRUE(std::isnormal(choose_qparams(range, scheme).scale)) << name;
      }
    }
  }
}

TEST(MovingPercentile, RejectsWhatLeavesNothing) {
  for (const double p : {50.0, 100.5, -1.0, std::nan("")}) {
    EXPECT_THROW(MovingPercentileObserver(1, scheme_of(8, true), p, 0.1), std::invalid_argument)
        << p;
  }
  for (const double c : {0.0, 1.5, -1.0, std::nan("")}) {
    EXPECT_THROW(MovingPercentileObserver(1, scheme_of(8, true), 99, c), std::invalid_argument)
        << c;
  }
}

}  // namespace
}  // namespace steelyard::observers
