// The range that holds all but the outermost values (kernels/percentile/percentile.h).
//
// It is exact while one step was observed (always for weights); over several it comes from a
// histogram and is off by less than a bin, at most 1/512 of the largest |x|.
#pragma once

#include "steelyard/observers/counting_observer.h"

namespace steelyard::observers {

class PercentileObserver : public CountingObserver {
 public:
  // percentile in (50, 100].
  PercentileObserver(std::int64_t channels, const QScheme& scheme, double percentile);

  std::string name() const override { return "percentile"; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;
  // Throws: the first step is exact, which needs its values at once.
  void begin_step() override { Observer::begin_step(); }  // NOLINT(bugprone-parent-virtual-call)

 protected:
  void count(const kernels::ChannelLayout& layout, const Tensor& values,
             const Extremes& step) override;
  void write_range(const Extremes& to) const override;

 private:
  double percentile_;
  bool symmetric_;
  Tensor steps_;    // i64 [1], observed so far that had finite values
  Extremes first_;  // f64, of the first step's values; lo > hi without finite ones
};

}  // namespace steelyard::observers
