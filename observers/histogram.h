// A histogram of everything observed; the range is the clipping of least squared error
// (kernels/histogram_ranges/histogram_ranges.h).
#pragma once

#include "steelyard/observers/counting_observer.h"

namespace steelyard::observers {

class HistogramObserver : public CountingObserver {
 public:
  HistogramObserver(std::int64_t channels, const QScheme& scheme)
      : CountingObserver(channels), scheme_(scheme) {}

  std::string name() const override { return "histogram"; }
  void set_bits(int bits) override { scheme_.bits = bits; }

 protected:
  void write_range(const Extremes& to) const override;

 private:
  QScheme scheme_;
};

}  // namespace steelyard::observers
