#include "observers/percentile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

namespace steelyard::observers {
namespace {

// The value of a fractional rank between the ordered values `at` gives.
template <typename F>
double interpolated(double rank, const F& at) {
  const double below = std::floor(rank);
  const double value = at(static_cast<std::int64_t>(below));
  const double part = rank - below;
  if (part == 0) return value;
  return value + part * (at(static_cast<std::int64_t>(below) + 1) - value);
}

double rank_of(double percentile, std::int64_t count) {
  return percentile / 100 * static_cast<double>(count - 1);
}

Range or_extremes(const Range& range, const Range& extremes) {
  return range.lo == 0 && range.hi == 0 ? extremes : range;
}

Range range_around_zero(double end) { return {-end, end}; }

// Counts of consecutive bins, the first of which starts at `start`, holding values in [lo, hi].
struct OrderedBins {
  std::span<const std::int64_t> counts;
  double start;
  double width;
  double lo, hi;

  std::int64_t count() const {
    std::int64_t sum = 0;
    for (const std::int64_t n : counts) sum += n;
    return sum;
  }

  // The k-th smallest of n values: the j-th of m in a bin lies (j + 1/2) / m of its width in.
  double value(std::int64_t k, std::int64_t n) const {
    if (k == 0) return lo;
    if (k >= n - 1) return hi;
    std::size_t bin = 0;
    for (; k >= counts[bin]; ++bin) k -= counts[bin];
    const double inside = (static_cast<double>(k) + 0.5) / static_cast<double>(counts[bin]);
    return std::clamp(start + (static_cast<double>(bin) + inside) * width, lo, hi);
  }

  double at_percentile(double percentile) const {
    const std::int64_t n = count();
    return interpolated(rank_of(percentile, n), [&](std::int64_t k) { return value(k, n); });
  }
};

}  // namespace

Range percentile_range(std::vector<float>& values, double percentile, bool symmetric) {
  if (values.empty()) return {};
  if (symmetric) {
    for (float& x : values) x = std::abs(x);
  }
  const auto count = static_cast<std::int64_t>(values.size());
  const auto at = [&](std::int64_t k) {
    const auto nth = values.begin() + k;
    std::nth_element(values.begin(), nth, values.end());
    return static_cast<double>(*nth) + 0.0;  // never -0
  };
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const Range extremes{*least, *most};
  const double hi = interpolated(rank_of(percentile, count), at);
  if (symmetric) return or_extremes(range_around_zero(hi), range_around_zero(extremes.hi));
  return or_extremes({interpolated(rank_of(100 - percentile, count), at), hi}, extremes);
}

Range percentile_range(const HistogramView& h, double percentile, bool symmetric) {
  const auto half = static_cast<std::size_t>(h.bins / 2);
  const std::span<const std::int64_t> counts(h.counts, static_cast<std::size_t>(h.bins));
  if (!symmetric) {
    const OrderedBins bins{counts, -static_cast<double>(half) * h.bin_width, h.bin_width,
                           h.extremes.lo, h.extremes.hi};
    return or_extremes({bins.at_percentile(100 - percentile), bins.at_percentile(percentile)},
                       h.extremes);
  }
  std::vector<std::int64_t> magnitudes(half);
  for (std::size_t b = 0; b < half; ++b) {
    magnitudes[b] = counts[half + b] + counts[half - 1 - b];
  }
  const double most = std::max(-h.extremes.lo, h.extremes.hi);
  const double least = std::max({h.extremes.lo, -h.extremes.hi, 0.0});
  const OrderedBins bins{magnitudes, 0, h.bin_width, least, most};
  return or_extremes(range_around_zero(bins.at_percentile(percentile)), range_around_zero(most));
}

PercentileObserver::PercentileObserver(std::int64_t channels, const QScheme& scheme,
                                       double percentile)
    : CountingObserver(channels),
      percentile_(percentile),
      symmetric_(scheme.symmetric),
      steps_(Tensor::zeros({1}, DType::kI64)),
      first_lo_(Tensor::empty({channels}, DType::kF64)),
      first_hi_(Tensor::empty({channels}, DType::kF64)) {
  if (!(percentile > 50 && percentile <= 100)) {
    throw std::invalid_argument("[percentile] expected a percentile in (50, 100], got " +
                                std::to_string(percentile));
  }
  PercentileObserver::reset();
}

std::int64_t PercentileObserver::observe_values(const kernels::ChannelLayout& layout,
                                                const float* values) {
  const std::int64_t skipped = CountingObserver::observe_values(layout, values);
  if (skipped == layout.size()) return skipped;  // nothing finite: the state stays
  if (++*steps_.data<std::int64_t>() > 1) return skipped;
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    std::vector<float> finite = finite_values(layout, values, c);
    const Range range = percentile_range(finite, percentile_, symmetric_);
    first_lo_.data<double>()[c] = range.lo;
    first_hi_.data<double>()[c] = range.hi;
  }
  return skipped;
}

std::vector<Range> PercentileObserver::ranges() const {
  if (*steps_.data<std::int64_t>() != 1) return CountingObserver::ranges();
  std::vector<Range> ranges;
  for (std::int64_t c = 0; c < first_lo_.size(); ++c) {
    ranges.push_back({first_lo_.data<double>()[c], first_hi_.data<double>()[c]});
  }
  return ranges;
}

Range PercentileObserver::range_of(const HistogramView& histogram) const {
  return percentile_range(histogram, percentile_, symmetric_);
}

void PercentileObserver::reset() {
  CountingObserver::reset();
  steps_.fill(0);
  first_lo_.fill(std::numeric_limits<double>::infinity());
  first_hi_.fill(-std::numeric_limits<double>::infinity());
}

std::vector<NamedBuffer> PercentileObserver::host_state() const {
  std::vector<NamedBuffer> state = CountingObserver::host_state();
  state.push_back({"steps", steps_});
  state.push_back({"first_lo", first_lo_});
  state.push_back({"first_hi", first_hi_});
  return state;
}

}  // namespace steelyard::observers
