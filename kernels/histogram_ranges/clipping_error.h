// Which clipping of a histogram has the least squared error
// (kernels/histogram_ranges/histogram_ranges.h), host and device.
#pragma once

#include <cmath>
#include <cstdint>

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/qparams.h"
#include "steelyard/kernels/quant_plan/range_choice.h"

namespace steelyard::kernels {

// A clipping keeps bins [first, last).
struct Clipping {
  std::int32_t first;
  std::int32_t last;
};

// Clippings of one pass of the search, in the order in which the first of equal ones wins.
// Symmetric: 1, 2, ... bins to both sides of `first`. Else `firsts` ends from `first` up, each with
// `lasts` ends from `last` down.
struct Clippings {
  std::int32_t first, firsts;
  std::int32_t last, lasts;
  std::int32_t step;
  bool symmetric;

  STEELYARD_HOST_DEVICE std::int32_t count() const { return firsts * lasts; }
  STEELYARD_HOST_DEVICE Clipping at(std::int32_t i) const {
    if (symmetric) return {first - 1 - i, first + 1 + i};
    const std::int32_t row = i / lasts;
    return {first + row * step, last - (i - row * lasts) * step};
  }
};

// One channel's histogram with sums over its first bins: of the counts, of count * centre and of
// count * centre^2, which give the error of any clipping in a few operations.
class ClippingErrors {
 public:
  // The errors of channel c. The three rows of sums lie after each other in `sums`, [3, bins + 1].
  STEELYARD_HOST_DEVICE ClippingErrors(const ChannelHistograms& h, std::int64_t c, CodeRange range,
                                       bool symmetric, const double* sums)
      : counts_(h.counts + c * h.bins),
        bins_(static_cast<std::int32_t>(h.bins)),
        bin_width_(std::ldexp(1.0, h.exponent[c])),
        lo_(h.lo[c] < 0 ? h.lo[c] : 0),
        hi_(h.hi[c] > 0 ? h.hi[c] : 0),
        range_(range),
        symmetric_(symmetric),
        count_(sums),
        first_(count_ + (bins_ + 1)),
        second_(first_ + (bins_ + 1)) {}

  // What a bin adds to the sums: count * centre^power.
  STEELYARD_HOST_DEVICE double moment(std::int32_t bin, int power) const {
    const double centre = (static_cast<double>(bin) - half() + 0.5) * bin_width_;
    double term = static_cast<double>(counts_[bin]);
    for (int i = 0; i < power; ++i) term *= centre;
    return term;
  }

  // The first pass: all of a symmetric quantizer's, else a coarse grid over both ends.
  STEELYARD_HOST_DEVICE Clippings coarse() const {
    const std::int32_t zero = bins_ / 2;
    const std::int32_t lowest = bin_of(lo_);
    const std::int32_t highest = bin_of(hi_) + 1;
    if (symmetric_) {
      const std::int32_t reach = zero - lowest > highest - zero ? zero - lowest : highest - zero;
      return {zero, reach, 0, 1, 1, true};
    }
    const std::int32_t step = highest - lowest < 64 ? 1 : (highest - lowest) / 64;
    return {lowest, (zero - lowest) / step + 1, highest, (highest - zero) / step + 1, step, false};
  }

  // The second pass of others: every bin around the best of the first.
  STEELYARD_HOST_DEVICE Clippings fine(const Clippings& coarse, const Clipping& best) const {
    const std::int32_t zero = bins_ / 2;
    const std::int32_t first = larger(coarse.first, best.first - coarse.step);
    const std::int32_t first_end = smaller(best.first + coarse.step, zero);
    const std::int32_t last = smaller(best.last + coarse.step, coarse.last);
    const std::int32_t last_end = larger(best.last - coarse.step, zero);
    return {first, first_end - first + 1, last, last - last_end + 1, 1, false};
  }

  STEELYARD_HOST_DEVICE double error(const Clipping& clipping) const {
    const auto [first, last] = clipping;
    if (last <= first) return INFINITY;
    const double lo = edge(first);
    const double hi = edge(last);
    const double scale = qparams_of_range<float>(lo, hi, range_, symmetric_).scale;
    // Bins whose centre rounds to code 0.
    const std::int32_t zero_first = between(bin_above(-scale / 2), first, last);
    const std::int32_t zero_last = between(bin_above(scale / 2), zero_first, last);
    const double inside = count_[last] - count_[first] - (count_[zero_last] - count_[zero_first]);
    return distance(0, first, lo) + distance(last, bins_, hi) + distance(zero_first, zero_last, 0) +
           (inside > 0 ? inside : 0) * scale * scale / 12.0;
  }

  // Bin edges overshoot the data by less than a bin; nothing beyond the extremes needs codes.
  STEELYARD_HOST_DEVICE RangeEnds range_of(const Clipping& clipping) const {
    const double lo = edge(clipping.first);
    const double hi = edge(clipping.last);
    return {lo > lo_ ? lo : lo_, hi < hi_ ? hi : hi_};
  }

 private:
  STEELYARD_HOST_DEVICE static std::int32_t larger(std::int32_t a, std::int32_t b) {
    return a > b ? a : b;
  }
  STEELYARD_HOST_DEVICE static std::int32_t smaller(std::int32_t a, std::int32_t b) {
    return a < b ? a : b;
  }
  STEELYARD_HOST_DEVICE static std::int32_t between(std::int32_t x, std::int32_t lo,
                                                    std::int32_t hi) {
    return smaller(larger(x, lo), hi);
  }
  STEELYARD_HOST_DEVICE double half() const { return static_cast<double>(bins_ / 2); }
  STEELYARD_HOST_DEVICE double edge(std::int32_t bin) const {
    return (static_cast<double>(bin) - half()) * bin_width_;
  }
  STEELYARD_HOST_DEVICE std::int32_t bin_of(double x) const {
    const double bin = std::floor(x / bin_width_) + half();
    return static_cast<std::int32_t>(clamp_keeping_nan<double>(bin, 0, bins_ - 1));
  }
  // The first bin whose centre is at or above x.
  STEELYARD_HOST_DEVICE std::int32_t bin_above(double x) const {
    const double bin = std::ceil(x / bin_width_ - 0.5) + half();
    return static_cast<std::int32_t>(clamp_keeping_nan<double>(bin, 0, bins_));
  }
  // Sum of count * (centre - end)^2 over bins [from, to).
  STEELYARD_HOST_DEVICE double distance(std::int32_t from, std::int32_t to, double end) const {
    const double n = count_[to] - count_[from];
    const double squared =
        second_[to] - second_[from] - 2.0 * end * (first_[to] - first_[from]) + n * end * end;
    return squared > 0 ? squared : 0;  // cancellation must not reward a clipping
  }

  const std::int64_t* counts_;
  std::int32_t bins_;
  double bin_width_;
  double lo_, hi_;  // extremes, extended to hold 0
  CodeRange range_;
  bool symmetric_;
  const double *count_, *first_, *second_;
};

}  // namespace steelyard::kernels
