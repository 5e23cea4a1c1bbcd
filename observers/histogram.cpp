#include "observers/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace steelyard::observers {
namespace {

// Sums over bins [0, b) of count, count * centre and count * centre^2, which give the error of any
// clipping in a few operations.
class Moments {
 public:
  explicit Moments(const HistogramView& h)
      : h_(h),
        count_(static_cast<std::size_t>(h.bins) + 1),
        first_(count_.size()),
        second_(count_.size()) {
    for (std::size_t b = 0; b + 1 < count_.size(); ++b) {
      const auto n = static_cast<double>(h.counts[b]);
      const double x = (static_cast<double>(b) - half() + 0.5) * h.bin_width;
      count_[b + 1] = count_[b] + n;
      first_[b + 1] = first_[b] + n * x;
      second_[b + 1] = second_[b] + n * x * x;
    }
  }

  // The clipping of values to bins [first, last).
  double error(std::size_t first, std::size_t last, double scale) const {
    const double lo = edge(first);
    const double hi = edge(last);
    const std::size_t end = count_.size() - 1;
    // Bins whose centre rounds to code 0.
    const std::size_t zero_first = std::clamp(bin_above(-scale / 2), first, last);
    const std::size_t zero_last = std::clamp(bin_above(scale / 2), zero_first, last);
    const double inside = count_[last] - count_[first] - (count_[zero_last] - count_[zero_first]);
    return distance(0, first, lo) + distance(last, end, hi) + distance(zero_first, zero_last, 0) +
           std::max(inside, 0.0) * scale * scale / 12.0;
  }

  double edge(std::size_t b) const { return (static_cast<double>(b) - half()) * h_.bin_width; }

 private:
  double half() const { return static_cast<double>(h_.bins / 2); }

  // Sum of count * (centre - end)^2 over bins [from, to).
  double distance(std::size_t from, std::size_t to, double end) const {
    const double n = count_[to] - count_[from];
    const double squared =
        second_[to] - second_[from] - 2.0 * end * (first_[to] - first_[from]) + n * end * end;
    return std::max(squared, 0.0);  // cancellation must not reward a clipping
  }

  // The first bin whose centre is at or above x.
  std::size_t bin_above(double x) const {
    const double b = std::ceil(x / h_.bin_width - 0.5) + half();
    return static_cast<std::size_t>(std::clamp(b, 0.0, static_cast<double>(h_.bins)));
  }

  const HistogramView& h_;
  std::vector<double> count_, first_, second_;
};

std::size_t bin_of(const HistogramView& h, double x) {
  const double b = std::floor(x / h.bin_width) + static_cast<double>(h.bins / 2);
  return static_cast<std::size_t>(std::clamp(b, 0.0, static_cast<double>(h.bins - 1)));
}

double scale_of(const QScheme& scheme, double lo, double hi) {
  return choose_qparams({lo, hi}, scheme).scale;
}

struct Best {
  std::size_t first = 0, last = 0;
  double error = std::numeric_limits<double>::infinity();
};

// Tries the ends first + i * step, last - j * step around a window and keeps the best.
void search(const Moments& moments, const QScheme& scheme, std::size_t first_lo,
            std::size_t first_hi, std::size_t last_lo, std::size_t last_hi, std::size_t step,
            Best& best) {
  for (std::size_t first = first_lo; first <= first_hi; first += step) {
    for (std::size_t last = last_hi; last >= last_lo; last -= std::min(step, last)) {
      if (last <= first) break;
      const double error =
          moments.error(first, last, scale_of(scheme, moments.edge(first), moments.edge(last)));
      if (error < best.error) best = {first, last, error};
      if (last == 0) break;
    }
  }
}

// Symmetric schemes clip both sides alike, so one end decides.
void search_symmetric(const Moments& moments, const QScheme& scheme, std::size_t zero,
                      std::size_t reach, Best& best) {
  for (std::size_t k = 1; k <= reach; ++k) {
    const double end = moments.edge(zero + k);
    const double error = moments.error(zero - k, zero + k, scale_of(scheme, -end, end));
    if (error < best.error) best = {zero - k, zero + k, error};
  }
}

}  // namespace

double histogram_error(const HistogramView& h, const Range& range, const QScheme& scheme) {
  double error = 0;
  const double scale = choose_qparams(range, scheme).scale;
  for (std::int64_t b = 0; b < h.bins; ++b) {
    const double x = (static_cast<double>(b - h.bins / 2) + 0.5) * h.bin_width;
    const auto n = static_cast<double>(h.counts[b]);
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

Range least_error_range(const HistogramView& h, const QScheme& scheme) {
  if (h.extremes.empty() || (h.extremes.lo == 0 && h.extremes.hi == 0)) return h.extremes;
  const Moments moments(h);
  const auto zero = static_cast<std::size_t>(h.bins / 2);
  const std::size_t lowest = bin_of(h, std::min(h.extremes.lo, 0.0));
  const std::size_t highest = bin_of(h, std::max(h.extremes.hi, 0.0)) + 1;
  Best best;
  if (scheme.symmetric) {
    search_symmetric(moments, scheme, zero, std::max(zero - lowest, highest - zero), best);
  } else {
    // A coarse grid over both ends, then every bin around its best.
    const std::size_t step = std::max<std::size_t>(1, (highest - lowest) / 64);
    search(moments, scheme, lowest, zero, zero, highest, step, best);
    const Best coarse = best;
    search(moments, scheme, coarse.first - std::min(coarse.first - lowest, step),
           std::min(coarse.first + step, zero),
           std::max(coarse.last - std::min(coarse.last, step), zero),
           std::min(coarse.last + step, highest), 1, best);
  }
  // Bin edges overshoot the data by less than a bin; nothing beyond the extremes needs codes.
  const double lo = std::max(moments.edge(best.first), std::min(h.extremes.lo, 0.0));
  const double hi = std::min(moments.edge(best.last), std::max(h.extremes.hi, 0.0));
  return {lo, hi};
}

}  // namespace steelyard::observers
