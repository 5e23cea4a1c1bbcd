// Exponential moving average of each step's percentiles, that starts as their mean.
//
// A step's percentiles are exact (kernels/percentile/percentile.h). A single outlier does not move
// the range, outliers in every batch move it little, and ranges of early training fade; the
// observer `percentile` keeps everything that it has counted. For weights, the range is that of the
// step alone. Sources: Li et al., "MQBench", 2021, arXiv:2111.03759 (its observer EMAQuantile);
// activations of Brevitas follow percentiles in the same way by default.
#pragma once

#include "steelyard/observers/observer.h"

namespace steelyard::observers {

class MovingPercentileObserver : public Observer {
 public:
  // percentile in (50, 100]; averaging_constant in (0, 1]: the weight of the newest step.
  MovingPercentileObserver(std::int64_t channels, const QScheme& scheme, double percentile,
                           double averaging_constant);

  std::string name() const override { return "moving_percentile"; }
  void observe(const kernels::ChannelLayout& layout, const Tensor& values,
               const Tensor& non_finite) override;
  Extremes range() const override { return state_; }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 private:
  double percentile_;
  double averaging_constant_;
  bool symmetric_;
  Extremes state_;  // f32, lo > hi until a finite value was seen
  Tensor steps_;    // i64
};

}  // namespace steelyard::observers
