// Observers against references written here in double.
#include "steelyard/observers/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"
#include "steelyard/observers/fixed.h"
#include "steelyard/observers/histogram.h"
#include "steelyard/observers/min_max.h"
#include "steelyard/observers/moving_average.h"
#include "steelyard/observers/registry.h"
#include "tests/observers/crafted.h"
#include "tests/observers/show.h"
#include "tests/support/gradcheck.h"

namespace steelyard::observers {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
const QScheme kAffine8{.is_signed = false, .symmetric = false, .narrow_range = false};

using Batches = std::vector<std::vector<float>>;

std::int64_t feed(Observer& observer, const Batches& batches, std::int64_t channels = 1) {
  std::int64_t skipped = 0;
  for (const auto& batch : batches) {
    const kernels::ChannelLayout layout{1, channels,
                                        static_cast<std::int64_t>(batch.size()) / channels};
    skipped += show(observer, layout, batch);
  }
  return skipped;
}

std::optional<std::pair<double, double>> finite_extremes(const std::vector<float>& batch) {
  std::optional<std::pair<double, double>> extremes;
  for (const float x : batch) {
    if (!std::isfinite(x)) continue;
    if (!extremes) extremes = {x, x};
    extremes->first = std::min<double>(extremes->first, x);
    extremes->second = std::max<double>(extremes->second, x);
  }
  return extremes;
}

const std::vector<Batches> kStreams = {
    {{1, -2, 3}, {0.5F, 4, -1}},
    {{kNan, kNan}, {2, 3}, {kInf, -kInf}, {kNan, 7, -1}},
    {{5, 5, 5}, {5, 5, 5}},
    {{0, -0.0F, 0}},
    {{-3, -3}},
    {{1e-30F, 2e-30F}, {1, 2}, {1e30F, -1e30F}},
    {{1, 2}, {3, 5}, {-2, 4}, {7, 9}, {1, 1}, {-4, 8}, {2, 3}},
    {{kNan}},
};

TEST(MinMax, AgreesWithTheReference) {
  for (const Batches& stream : kStreams) {
    MinMaxObserver observer(1);
    std::int64_t non_finite = 0;
    Range expected;
    for (const auto& batch : stream) {
      for (const float x : batch) non_finite += !std::isfinite(x);
      if (const auto e = finite_extremes(batch)) {
        expected.lo = std::min(expected.lo, e->first);
        expected.hi = std::max(expected.hi, e->second);
      }
    }
    EXPECT_EQ(feed(observer, stream), non_finite);
    EXPECT_EQ(observer.ranges()[0], expected);
  }
}

TEST(MovingAverage, AgreesWithTheReference) {
  constexpr double kConstant = 0.25;  // exact in float
  for (const Batches& stream : kStreams) {
    MovingAverageObserver observer(1, kConstant);
    std::optional<std::pair<double, double>> expected;
    int steps = 0;
    for (const auto& batch : stream) {
      const auto e = finite_extremes(batch);
      if (!e) continue;
      ++steps;
      if (!expected) expected = e;
      const double weight = std::max(kConstant, 1.0 / steps);
      expected->first += weight * (e->first - expected->first);
      expected->second += weight * (e->second - expected->second);
    }
    feed(observer, stream);
    const Range range = observer.ranges()[0];
    ASSERT_EQ(range.empty(), !expected.has_value());
    if (!expected) continue;
    EXPECT_NEAR(range.lo, expected->first, 1e-6 * std::abs(expected->first));
    EXPECT_NEAR(range.hi, expected->second, 1e-6 * std::abs(expected->second));
  }
}

TEST(Fixed, GivesItsRangeWhateverIsSeen) {
  const auto observer = make_observer({.type = "fixed", .limit = 0.5}, kAffine8, 2);
  const Tensor non_finite = Tensor::zeros({1}, DType::kI64);
  observer->observe({1, 2, 3}, Tensor::from<float>({9, -7, 1, NAN, 0, 3}, {2, 3}), non_finite);
  for (const Range& range : observer->ranges()) {
    EXPECT_EQ(range.lo, 0);
    EXPECT_EQ(range.hi, 0.5);
  }
  EXPECT_EQ(non_finite.item(), 1);
}

TEST(Fixed, RejectsWhatIsNoRange) {
  for (const double limit : {0.0, -1.0, 1e300, HUGE_VAL, std::nan("")}) {
    EXPECT_THROW(FixedObserver(1, limit), std::invalid_argument) << limit;
  }
  for (const double least : {0.5, -1e300, std::nan("")}) {
    EXPECT_THROW(FixedObserver(1, 1, least), std::invalid_argument) << least;
  }
}

TEST(Observers, ChannelsAreIndependent) {
  const std::vector<float> both{1, 2, 3, -5, kNan, 7};
  for (const std::string& name : observer_names()) {
    auto together = make_observer({.type = name}, kAffine8, 2);
    EXPECT_EQ(feed(*together, {both}, 2), 1) << name;
    for (std::size_t c = 0; c < 2; ++c) {
      auto alone = make_observer({.type = name}, kAffine8, 1);
      feed(*alone, {{both.begin() + 3 * static_cast<std::ptrdiff_t>(c),
                     both.begin() + 3 * static_cast<std::ptrdiff_t>(c) + 3}});
      EXPECT_EQ(together->ranges()[c], alone->ranges()[0]) << name;
    }
  }
}

TEST(Observers, StateTensorsAreTheWholeState) {
  const Batches first{{1, -2, 3, 0.25F}}, second{{9, -4, kNan, 2}};
  for (const std::string& name : observer_names()) {
    auto original = make_observer({.type = name}, kAffine8, 1);
    feed(*original, first);
    auto copy = make_observer({.type = name}, kAffine8, 1);
    const auto from = original->state();
    const auto to = copy->state();
    for (std::size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_from(from[i].tensor);
    EXPECT_EQ(copy->ranges(), original->ranges()) << name;
    feed(*original, second);
    feed(*copy, second);
    EXPECT_EQ(copy->ranges(), original->ranges()) << name;
    original->reset();
    EXPECT_TRUE(original->ranges()[0].empty()) << name;
  }
}

std::int64_t counted(const Observer& observer) {
  for (const NamedBuffer& buffer : observer.state()) {
    if (buffer.name != "counts") continue;
    const auto counts = buffer.tensor.span<std::int64_t>();
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  return -1;
}

TEST(Histogram, NothingIsDroppedWhileItGrows) {
  for (const Batches& stream : kStreams) {
    HistogramObserver observer(1, kAffine8);
    std::int64_t finite = 0;
    for (const auto& batch : stream) {
      finite += std::count_if(batch.begin(), batch.end(), [](float x) { return std::isfinite(x); });
    }
    feed(observer, stream);
    EXPECT_EQ(counted(observer), finite);
  }
}

TEST(Histogram, ConstantsKeepTheirValueInRange) {
  for (const float value : {5.0F, -3.0F, 1e-20F, 3e38F}) {
    HistogramObserver observer(1, kAffine8);
    feed(observer, {std::vector<float>(100, value)});
    const Range range = observer.ranges()[0];
    EXPECT_LE(range.lo, 0.99 * std::min(value, 0.0F));
    EXPECT_GE(range.hi, 0.99 * std::max(value, 0.0F));
  }
  HistogramObserver zeros(1, kAffine8);
  feed(zeros, {{0, 0, 0}});
  EXPECT_EQ(zeros.ranges()[0], (Range{0, 0}));
}

// Estimated sum of squared errors of clipping to [lo, hi] and quantizing, from the centres of bins
// of a width that are anchored at 0.
double histogram_error(const std::vector<std::int64_t>& counts, double width, const Range& range,
                       const QScheme& scheme) {
  double error = 0;
  const double scale = choose_qparams(range, scheme).scale;
  const auto half = static_cast<double>(counts.size() / 2);
  for (std::size_t b = 0; b < counts.size(); ++b) {
    const double x = (static_cast<double>(b) - half + 0.5) * width;
    const auto n = static_cast<double>(counts[b]);
    if (x < range.lo) {
      error += n * (x - range.lo) * (x - range.lo);
    } else if (x > range.hi) {
      error += n * (x - range.hi) * (x - range.hi);
    } else {
      error += n * (std::abs(x) < scale / 2 ? x * x : scale * scale / 12.0);
    }
  }
  return error;
}

class LeastError : public ::testing::TestWithParam<std::tuple<std::size_t, int, bool>> {};

// The search looks at coarse and then fine ends; no range of bin edges may be much better.
TEST_P(LeastError, MatchesBruteForce) {
  const auto [which, bits, symmetric] = GetParam();
  const QScheme scheme{
      .bits = bits, .is_signed = symmetric, .symmetric = symmetric, .narrow_range = symmetric};
  const std::vector<float> samples = crafted_samples(kCrafted[which], 4000);
  const auto [lo, hi] = std::minmax_element(samples.begin(), samples.end());
  constexpr std::int64_t kBins = 256;
  const double amax = std::max(std::abs(*lo), std::abs(*hi));
  std::int32_t exponent = static_cast<std::int32_t>(std::ceil(std::log2(amax * 2 / kBins)));
  const double width = std::exp2(exponent);
  std::vector<std::int64_t> counts(kBins, 0);
  for (const float x : samples) {
    ++counts[static_cast<std::size_t>(
        std::clamp(std::floor(x / width) + kBins / 2, 0.0, kBins - 1.0))];
  }
  const auto error_of = [&](const Range& range) {
    return histogram_error(counts, width, range, scheme);
  };
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t first = 0; first <= kBins / 2; ++first) {
    for (std::int64_t last = kBins / 2; last <= kBins; ++last) {
      if (symmetric && last - kBins / 2 != kBins / 2 - first) continue;
      if (first == last) continue;
      const double a = static_cast<double>(first - kBins / 2) * width;
      const double b = static_cast<double>(last - kBins / 2) * width;
      best = std::min(best, error_of({a, b}));
    }
  }
  Range chosen;
  float least = *lo;
  float most = *hi;
  kernels::run(kernels::LeastErrorRanges{{1, kBins, counts.data(), &exponent, &least, &most},
                                         scheme.code_range(),
                                         symmetric,
                                         &chosen.lo,
                                         &chosen.hi});
  // The extremes lie up to half a bin from the centre of their bin.
  EXPECT_LE(error_of(chosen), 1.05 * best + 0.26 * width * width) << chosen.lo << " " << chosen.hi;
  // An outlier must not decide the range of a 4-bit quantizer.
  if (which == 2 && bits <= 4 && !symmetric) {
    EXPECT_LT(chosen.hi, 10.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Crafted, LeastError,
                         ::testing::Combine(::testing::Range(std::size_t{0}, std::size_t{7}),
                                            ::testing::Values(8, 4, 2), ::testing::Bool()),
                         [](const auto& p) {
                           return std::string(kCrafted[std::get<0>(p.param)].name) + "_" +
                                  std::to_string(std::get<1>(p.param)) +
                                  (std::get<2>(p.param) ? "_symmetric" : "_affine");
                         });

// An observer of two channels, whatever it is made for.
class TwoChannels : public MinMaxObserver {
 public:
  explicit TwoChannels(double lo) : MinMaxObserver(2) { range().lo.fill(lo), range().hi.fill(1); }
  std::string name() const override { return "two_channels"; }
};

TEST(OwnObserver, HasAFiniteRangeForEachChannel) {
  const auto write = [](const Observer& observer, std::int64_t channels) {
    observer.write_qparams(kAffine8,
                           {Tensor::zeros({channels}), Tensor::zeros({channels}, DType::kI32)},
                           Tensor::zeros({channels}, DType::kU8));
  };
  const auto refusal = [&](double lo, std::int64_t channels) {
    return testing::message_of<std::invalid_argument>([&] { write(TwoChannels(lo), channels); });
  };
  EXPECT_NO_THROW(write(TwoChannels(-1), 2));
  EXPECT_NO_THROW(write(TwoChannels(kInf), 2)) << "a range of nothing";
  EXPECT_EQ(refusal(-1, 3),
            "[two_channels] expected ranges of 3 channels in one dtype, got f32 [2] to f32 [2]");
  EXPECT_EQ(refusal(kNan, 2),
            "[two_channels] expected a finite range, got [nan, 1.000000] of channel 0");
  EXPECT_EQ(refusal(-kInf, 2),
            "[two_channels] expected a finite range, got [-inf, 1.000000] of channel 0");
}

TEST(OwnObserver, IsMade) {
  const auto refusal = [](const ObserverRow& row) {
    const ObserverOptions options{.type = "mine", .own = std::make_shared<ObserverRow>(row)};
    return testing::message_of<std::invalid_argument>([&] { make_observer(options, kAffine8, 1); });
  };
  EXPECT_EQ(refusal({.make = [](const auto&...) { return std::unique_ptr<Observer>(); }}),
            "[observer] the observer 'mine' gave none");
  EXPECT_EQ(refusal({}), "[observer] the observer 'mine' gave none");
}

}  // namespace
}  // namespace steelyard::observers
