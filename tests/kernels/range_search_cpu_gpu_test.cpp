// From observed values to ranges: CPU against GPU, no bit different.
#include <gtest/gtest.h>

#include <limits>

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"
#include "steelyard/kernels/percentile/percentile.h"
#include "steelyard/kernels/reduce/reduce.h"
#include "steelyard/kernels/shrunken_range/shrunken_range.h"
#include "tests/kernels/twin.h"

namespace steelyard::kernels {
namespace {

using test::for_each_order;
using test::on_both;
using test::random_reals;
using test::Twin;

constexpr float kInf = std::numeric_limits<float>::infinity();

// One scale, rows, groups of a row; sizes around warps, blocks and chunks of sums; several outer
// parts; more bins than elements and the other way round.
const ChannelLayout kSearchedLayouts[] = {{1, 1, 0},    {1, 1, 1},    {1, 1, 33},  {1, 1, 1025},
                                          {1, 1, 9001}, {1, 5, 77},   {1, 3, 300}, {3, 4, 8},
                                          {29, 7, 1},   {2, 2, 1500}, {0, 3, 4},   {1, 0, 4}};

struct Codes {
  CodeRange range;
  bool symmetric;
};
constexpr Codes kCodes[] = {{{-127, 127}, true}, {{-8, 7}, true},  {{-1, 1}, true},
                            {{0, 255}, false},   {{-8, 7}, false}, {{0, 3}, false}};

// The kinds of steps that observers meet, by number. Each channel has its own magnitude, so that
// histograms grow by different widths.
constexpr int kKinds = 10;
std::vector<float> step_values(const ChannelLayout& layout, int kind) {
  std::vector<float> values = random_reals<float>(layout.size(), 1, static_cast<unsigned>(kind),
                                                  /*any=*/kind == 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = (static_cast<std::int64_t>(i) / layout.inner) % layout.channels;
    float& x = values[i];
    switch (kind) {
      case 1:  // the next size for some, the same for others
        x *= c % 2 == 0 ? 1.0F : 37.5F;
        break;
      case 2:  // after a ReLU, larger by many widths
        x = x > 0 ? x * 1e6F : 0.0F;
        break;
      case 4:  // nothing finite in some channels, NaN among the others
        x = c % 3 == 1 || i % 5 == 0 ? (i % 2 == 0 ? std::nanf("") : -kInf) : x;
        break;
      case 5:
        x = -0.0F;
        break;
      case 6:
        x = c % 2 == 0 ? -2.5F : 0.75F;
        break;
      case 7:  // denormals
        x = static_cast<float>(static_cast<int>(i % 7) - 3) * 1e-44F;
        break;
      case 8:  // one sign, far from 0
        x = -100 - std::abs(x);
        break;
      case 9:
        x = std::nanf("");
        break;
      default:
        break;
    }
  }
  return values;
}

// What a channel's histogram and the step before it left.
struct Histograms {
  Histograms(std::int64_t channel_count, std::int64_t bin_count)
      : channels(channel_count),
        bins(bin_count),
        counts(std::vector<std::int64_t>(static_cast<std::size_t>(channels * bins))),
        exponent(std::vector<std::int32_t>(static_cast<std::size_t>(channels))),
        lo(std::vector<float>(static_cast<std::size_t>(channels), kInf)),
        hi(std::vector<float>(static_cast<std::size_t>(channels), -kInf)) {}

  template <typename At>
  ChannelHistograms at(const At& where) {
    return {channels, bins, where(counts), where(exponent), where(lo), where(hi)};
  }
  std::int64_t differences() const {
    return counts.differences() + exponent.differences() + lo.differences() + hi.differences();
  }

  std::int64_t channels, bins;
  Twin<std::int64_t> counts;
  Twin<std::int32_t> exponent;
  Twin<float> lo, hi;
};

std::string description(const ChannelLayout& layout, const Codes& codes, int kind) {
  return std::to_string(layout.outer) + " x " + std::to_string(layout.channels) + " x " +
         std::to_string(layout.inner) + ", codes " + std::to_string(codes.range.qmin) + " to " +
         std::to_string(codes.range.qmax) + (codes.symmetric ? " symmetric" : "") + ", step " +
         std::to_string(kind);
}

// Feeds every kind of step and compares what search(histograms, ends, at, queue...) finds after
// each.
template <typename Search>
void check_histograms(const ChannelLayout& layout, const Codes& codes, std::int64_t bins,
                      const Search& search) {
  Histograms h(layout.channels, bins);
  for (const int kind : {0, 1, 5, 4, 2, 9, 3, 8}) {
    SCOPED_TRACE(description(layout, codes, kind));
    Twin<float> x(step_values(layout, kind)), step_lo(layout.channels), step_hi(layout.channels);
    Twin<double> lo(layout.channels), hi(layout.channels);
    Twin<std::int64_t> uncounted;
    on_both([&](auto at, auto&... queue) {
      run(queue..., MinMax<float>{layout, at(x), at(step_lo), at(step_hi), at(uncounted)});
      run(queue..., GrowHistograms{h.at(at), at(step_lo), at(step_hi)});
      run(queue..., CountInHistograms{h.at(at), layout, at(x)});
      search(h.at(at), at(lo), at(hi), queue...);
    });
    ASSERT_EQ(h.differences(), 0);
    ASSERT_EQ(lo.differences() + hi.differences(), 0);
  }
}

TEST(RangeSearchOnGpu, LeastErrorIsTheCpus) {
  for (const ChannelLayout& layout : kSearchedLayouts) {
    for (const Codes& codes : kCodes) {
      check_histograms(layout, codes, 2048, [&](const auto& h, double* lo, double* hi, auto&... q) {
        run(q..., LeastErrorRanges{h, codes.range, codes.symmetric, lo, hi});
      });
    }
  }
}

TEST(RangeSearchOnGpu, LeastDivergenceIsTheCpus) {
  for (const ChannelLayout& layout : kSearchedLayouts) {
    for (const Codes& codes : kCodes) {
      const std::int64_t bins = layout.channels == 1 ? 8192 : 1024;
      check_histograms(layout, codes, bins, [&](const auto& h, double* lo, double* hi, auto&... q) {
        run(q..., LeastDivergenceRanges{h, codes.range, codes.symmetric, lo, hi});
      });
    }
  }
}

TEST(RangeSearchOnGpu, FewBinsAndEveryOrderOfThreads) {
  for (const std::int64_t bins : {2, 4, 64}) {
    for (const Codes& codes : {kCodes[2], kCodes[5]}) {
      for_each_order([&] {
        check_histograms({1, 3, 40}, codes, bins,
                         [&](const auto& h, double* lo, double* hi, auto&... q) {
                           run(q..., LeastErrorRanges{h, codes.range, codes.symmetric, lo, hi});
                         });
        check_histograms(
            {1, 3, 40}, codes, bins, [&](const auto& h, double* lo, double* hi, auto&... q) {
              run(q..., LeastDivergenceRanges{h, codes.range, codes.symmetric, lo, hi});
            });
      });
    }
  }
}

// Channels whose sums do not fit the memory at once are searched in parts.
TEST(RangeSearchOnGpu, ManyChannelsArePartsOfThem) {
  for (const bool divergence : {false, true}) {
    check_histograms(
        {1, 5, 200}, kCodes[3], 256,
        [&](const auto& h, double* lo, double* hi, const auto&... queue) {
          [[maybe_unused]] const auto two_channels = [&](CudaQueue little) {
            little.part_bytes = 2 * 3 * (h.bins + 1) * std::int64_t{sizeof(double)};
            return little;
          };
          if (divergence) {
            run(two_channels(queue)..., LeastDivergenceRanges{h, {0, 255}, false, lo, hi});
          } else {
            run(two_channels(queue)..., LeastErrorRanges{h, {0, 255}, false, lo, hi});
          }
        });
  }
}

TEST(RangeSearchOnGpu, PercentilesAreTheCpus) {
  for (const ChannelLayout& layout : kSearchedLayouts) {
    for (const bool symmetric : {true, false}) {
      for (const double percentile : {99.99, 75.0, 50.5, 100.0}) {
        Histograms h(layout.channels, 512);
        const auto start = [&](double value) {
          return std::vector<double>(static_cast<std::size_t>(layout.channels), value);
        };
        Twin<std::int64_t> steps(std::vector<std::int64_t>{0}), uncounted;
        Twin<double> first_lo(start(kInf)), first_hi(start(-kInf));
        for (const int kind : {9, 4, 9, 0, 2}) {
          SCOPED_TRACE(description(layout, {{}, symmetric}, kind));
          Twin<float> x(step_values(layout, kind)), step_lo(layout.channels),
              step_hi(layout.channels);
          Twin<double> lo(layout.channels), hi(layout.channels);
          on_both([&](auto at, auto&... queue) {
            run(queue..., MinMax<float>{layout, at(x), at(step_lo), at(step_hi), at(uncounted)});
            run(queue..., GrowHistograms{h.at(at), at(step_lo), at(step_hi)});
            run(queue..., CountInHistograms{h.at(at), layout, at(x)});
            run(queue...,
                PercentilesOfFirstStep{layout, percentile, symmetric, at(x), at(step_lo),
                                       at(step_hi), at(steps), at(first_lo), at(first_hi)});
            run(queue..., PercentileRanges{h.at(at), percentile, symmetric, at(steps), at(first_lo),
                                           at(first_hi), at(lo), at(hi)});
          });
          ASSERT_EQ(steps.differences(), 0);
          ASSERT_EQ(first_lo.differences() + first_hi.differences(), 0);
          ASSERT_EQ(lo.differences() + hi.differences(), 0);
        }
        const std::int64_t expected_steps = layout.size() > 1 ? 3 : 2;  // x[0] of step 4 is NaN
        ASSERT_EQ(steps.values()[0], layout.size() == 0 ? 0 : expected_steps);
      }
    }
  }
}

// Percentiles of each kind of values alone.
TEST(RangeSearchOnGpu, PercentilesOfOneStepAreTheCpus) {
  const ChannelLayout layout{2, 3, 700};
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const bool symmetric : {true, false}) {
      SCOPED_TRACE(description(layout, {{}, symmetric}, kind));
      for_each_order([&] {
        Twin<float> x(step_values(layout, kind)), x_lo(3), x_hi(3);
        Twin<std::int64_t> steps(std::vector<std::int64_t>{0}), uncounted;
        Twin<double> lo(3), hi(3);
        on_both([&](auto at, auto&... queue) {
          run(queue..., MinMax<float>{layout, at(x), at(x_lo), at(x_hi), at(uncounted)});
          run(queue..., PercentilesOfFirstStep{layout, 99.5, symmetric, at(x), at(x_lo), at(x_hi),
                                               at(steps), at(lo), at(hi)});
        });
        ASSERT_EQ(steps.differences() + lo.differences() + hi.differences(), 0);
      });
    }
  }
}

void check_shrinkings(const ChannelLayout& layout, const Codes& codes, int kind) {
  SCOPED_TRACE(description(layout, codes, kind));
  Twin<float> x(step_values(layout, kind)), lo(layout.channels), hi(layout.channels),
      best_lo(layout.channels), best_hi(layout.channels);
  Twin<std::int64_t> uncounted;
  on_both([&](auto at, auto&... queue) {
    run(queue..., MinMax<float>{layout, at(x), at(lo), at(hi), at(uncounted)});
    run(queue..., LeastErrorShrinkings{layout, codes.range, codes.symmetric, at(x), at(lo), at(hi),
                                       at(best_lo), at(best_hi)});
  });
  ASSERT_EQ(best_lo.differences() + best_hi.differences(), 0);
}

TEST(RangeSearchOnGpu, ShrunkenRangesAreTheCpus) {
  for (const ChannelLayout& layout : kSearchedLayouts) {
    for (const Codes& codes : kCodes) {
      for (const int kind : {0, 2, 4}) check_shrinkings(layout, codes, kind);
    }
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const Codes& codes : {kCodes[1], kCodes[4]}) {
      for_each_order([&] { check_shrinkings({2, 3, 90}, codes, kind); });
    }
  }
  check_shrinkings({1, 1, 300000}, kCodes[1], 0);  // more chunks than a block adds at a time
}

}  // namespace
}  // namespace steelyard::kernels
