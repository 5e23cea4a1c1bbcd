// A histogram of everything observed; the range is the clipping of least squared error.
#pragma once

#include "observers/observer.h"

namespace steelyard::observers {

// A range whose squared quantization error is estimated from a histogram; see histogram_error().
struct HistogramView {
  double bin_width = 0;
  std::int64_t bins = 0;  // even; bin b starts at (b - bins / 2) * bin_width
  const std::int64_t* counts = nullptr;
  Range extremes;
};

// Estimated sum of squared errors of clipping to [lo, hi] and quantizing with `scheme`, from the
// centres of the bins: outside, the squared distance from the clipped end; within half a step of 0,
// which is always exact, the squared value; elsewhere scale^2 / 12.
double histogram_error(const HistogramView& histogram, const Range& range, const QScheme& scheme);

// The range of least histogram_error() among ranges that end at bin edges inside the extremes.
Range least_error_range(const HistogramView& histogram, const QScheme& scheme);

class HistogramObserver : public Observer {
 public:
  static constexpr std::int64_t kBins = 2048;

  HistogramObserver(std::int64_t channels, const QScheme& scheme);

  std::string name() const override { return "histogram"; }
  std::int64_t observe(const kernels::ChannelLayout& layout, const float* values) override;
  std::vector<Range> ranges() const override;
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 private:
  void grow_to(std::int64_t channel, float lo, float hi);

  QScheme scheme_;
  Tensor counts_;    // i64 [channels, kBins]
  Tensor exponent_;  // i32 [channels], of the bin width
  Tensor min_;       // f32 [channels], +inf until a finite value was seen
  Tensor max_;       // f32 [channels], -inf until then
};

}  // namespace steelyard::observers
