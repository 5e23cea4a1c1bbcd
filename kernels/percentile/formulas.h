// Percentiles as kernels/histogram_ranges/histogram_ranges.h takes them, host and device. Between
// two values one is interpolated, as by numpy.percentile.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/quant_plan/range_choice.h"

namespace steelyard::kernels {

// A percentile of ordered values lies `part` of the way from that of rank `below` to the next.
struct PercentileRank {
  std::int64_t below;
  double part;
};
STEELYARD_HOST_DEVICE inline PercentileRank percentile_rank(double percentile, std::int64_t count) {
  const double rank = percentile / 100 * static_cast<double>(count - 1);
  const double below = std::floor(rank);
  return {static_cast<std::int64_t>(below), rank - below};
}

// What a range is made of: both ends' percentiles, of which a symmetric one takes the upper.
inline constexpr int kPercentileRanks = 4;

// The rank of value i < kPercentileRanks that a range is interpolated from: those around the lower
// end, then those around the upper one.
STEELYARD_HOST_DEVICE inline std::int64_t rank_needed(int i, double percentile,
                                                      std::int64_t count) {
  const PercentileRank rank = percentile_rank(i < 2 ? 100 - percentile : percentile, count);
  const std::int64_t k = rank.below + i % 2;
  return k < count ? k : count - 1;
}

STEELYARD_HOST_DEVICE inline double interpolated(double part, double value, double next) {
  return part == 0 ? value : value + part * (next - value);
}

// The range from the values of rank_needed(), which are |x| where symmetric; extremes of x.
STEELYARD_HOST_DEVICE inline RangeEnds percentile_range(const double* values, double percentile,
                                                        std::int64_t count, bool symmetric,
                                                        double lo, double hi) {
  const double upper = interpolated(percentile_rank(percentile, count).part, values[2], values[3]);
  if (symmetric) {
    const double most = -lo > hi ? -lo : hi;
    return upper == 0 ? RangeEnds{-most, most} : RangeEnds{-upper, upper};
  }
  const double lower =
      interpolated(percentile_rank(100 - percentile, count).part, values[0], values[1]);
  return lower == 0 && upper == 0 ? RangeEnds{lo, hi} : RangeEnds{lower, upper};
}

// A channel's bins in the order of the values that they hold: of |x| where symmetric.
class OrderedBins {
 public:
  STEELYARD_HOST_DEVICE OrderedBins(const ChannelHistograms& h, std::int64_t c, bool symmetric)
      : at_zero_(h.counts + c * h.bins + h.bins / 2),
        half_(h.bins / 2),
        bin_width_(std::ldexp(1.0, h.exponent[c])),
        symmetric_(symmetric),
        least_(h.lo[c]),
        most_(h.hi[c]) {
    if (!symmetric) return;
    most_ = -h.lo[c] > h.hi[c] ? -h.lo[c] : h.hi[c];
    least_ = h.lo[c] > -h.hi[c] ? h.lo[c] : -h.hi[c];
    least_ = least_ > 0 ? least_ : 0;
  }

  STEELYARD_HOST_DEVICE std::int64_t bins() const { return symmetric_ ? half_ : 2 * half_; }
  STEELYARD_HOST_DEVICE std::int64_t count(std::int64_t bin) const {
    return symmetric_ ? at_zero_[bin] + at_zero_[-1 - bin] : at_zero_[bin - half_];
  }

  // The k-th smallest of n values, which is the j-th of m in its bin: it lies (j + 1/2) / m of the
  // bin's width in.
  STEELYARD_HOST_DEVICE double value(std::int64_t k, std::int64_t n, std::int64_t bin,
                                     std::int64_t j) const {
    if (k == 0) return least_;
    if (k >= n - 1) return most_;
    const double inside = (static_cast<double>(j) + 0.5) / static_cast<double>(count(bin));
    const auto place = static_cast<double>(symmetric_ ? bin : bin - half_);
    const double x = (place + inside) * bin_width_;
    return x < least_ ? least_ : x > most_ ? most_ : x;
  }

 private:
  const std::int64_t* at_zero_;
  std::int64_t half_;
  double bin_width_;
  bool symmetric_;
  double least_, most_;
};

}  // namespace steelyard::kernels
