// What observers share that count everything they see in a histogram per channel.
#pragma once

#include "observers/observer.h"

namespace steelyard::observers {

// One channel's histogram.
struct HistogramView {
  double bin_width = 0;
  std::int64_t bins = 0;  // even; bin b starts at (b - bins / 2) * bin_width
  const std::int64_t* counts = nullptr;
  Range extremes;
};

// Counts in bins whose width is a power of two, anchored at 0; when values outgrow them, pairs of
// bins merge and nothing is dropped. So the larger extreme lies in the outer half of its side.
// Subclasses turn a histogram into a range.
class CountingObserver : public HostObserver {
 public:
  static constexpr std::int64_t kBins = 2048;

  // bins: a power of two.
  explicit CountingObserver(std::int64_t channels, std::int64_t bins = kBins);

  std::vector<Range> ranges() const override;
  void reset() override;

 protected:
  std::int64_t observe_values(const kernels::ChannelLayout& layout, const float* values) override;
  std::vector<NamedBuffer> host_state() const override;
  // The range of a channel that has seen finite values; called for several channels at once.
  virtual Range range_of(const HistogramView& histogram) const = 0;
  HistogramView view(std::int64_t channel) const;

 private:
  void grow_to(std::int64_t channel, float lo, float hi);

  std::int64_t bins_;
  Tensor counts_;    // i64 [channels, bins]
  Tensor exponent_;  // i32 [channels], of the bin width
  Tensor min_;       // f32 [channels], +inf until a finite value was seen
  Tensor max_;       // f32 [channels], -inf until then
};

// The finite values of one channel.
std::vector<float> finite_values(const kernels::ChannelLayout& layout, const float* values,
                                 std::int64_t channel);

}  // namespace steelyard::observers
