// The range that holds all but the outermost values.
//
// Symmetric schemes: [-t, t] with t the percentile of |x|. Affine ones: from the percentile
// 100 - p to the percentile p of x. Between two values a percentile is interpolated, as by
// numpy.percentile. It is exact while one step was observed (always for weights); over several it
// comes from a histogram and is off by less than a bin, at most 1/512 of the largest |x|. A range
// of [0, 0] would lose whatever is not 0: then the extremes are taken.
#pragma once

#include "observers/counting_observer.h"

namespace steelyard::observers {

// The percentile range of unsorted values, all finite; `values` is reordered.
Range percentile_range(std::vector<float>& values, double percentile, bool symmetric);
// The same from a histogram, whose values are taken to lie evenly within their bin.
Range percentile_range(const HistogramView& histogram, double percentile, bool symmetric);

class PercentileObserver : public CountingObserver {
 public:
  // percentile in (50, 100].
  PercentileObserver(std::int64_t channels, const QScheme& scheme, double percentile);

  std::string name() const override { return "percentile"; }
  std::vector<Range> ranges() const override;
  void reset() override;

 protected:
  std::int64_t observe_values(const kernels::ChannelLayout& layout, const float* values) override;
  std::vector<NamedBuffer> host_state() const override;
  Range range_of(const HistogramView& histogram) const override;

 private:
  double percentile_;
  bool symmetric_;
  Tensor steps_;     // i64 [1], observed so far
  Tensor first_lo_;  // f64 [channels], of the first step's values; lo > hi without finite ones
  Tensor first_hi_;
};

}  // namespace steelyard::observers
