// A histogram of everything observed; the range is the clipping of least squared error.
#pragma once

#include "observers/counting_observer.h"

namespace steelyard::observers {

// Estimated sum of squared errors of clipping to [lo, hi] and quantizing with `scheme`, from the
// centres of the bins: outside, the squared distance from the clipped end; within half a step of 0,
// which is always exact, the squared value; elsewhere scale^2 / 12.
double histogram_error(const HistogramView& histogram, const Range& range, const QScheme& scheme);

// The range of least histogram_error() among ranges that end at bin edges inside the extremes.
Range least_error_range(const HistogramView& histogram, const QScheme& scheme);

class HistogramObserver : public CountingObserver {
 public:
  HistogramObserver(std::int64_t channels, const QScheme& scheme)
      : CountingObserver(channels), scheme_(scheme) {}

  std::string name() const override { return "histogram"; }
  void set_bits(int bits) override { scheme_.bits = bits; }

 protected:
  Range range_of(const HistogramView& histogram) const override {
    return least_error_range(histogram, scheme_);
  }

 private:
  QScheme scheme_;
};

}  // namespace steelyard::observers
