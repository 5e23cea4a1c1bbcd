// Exponential moving average of each step's extremes, m + c * (x - m), that starts as their mean.
//
// The weight of step t is max(c, 1 / t): started at the first step's extremes, an average with a
// small c would hold on to the range of untrained weights for the first 1 / c steps and clip what
// they grow to. Source of the average: Jacob et al., "Quantization and Training of Neural
// Networks", 2018, section 3.1; of a start without bias: Kingma and Ba, "Adam", 2015, section 3.
#pragma once

#include "steelyard/observers/extremes_observer.h"

namespace steelyard::observers {

class MovingAverageObserver : public ExtremesObserver {
 public:
  // averaging_constant c in (0, 1]: the weight of the newest step.
  MovingAverageObserver(std::int64_t channels, double averaging_constant);

  std::string name() const override { return "moving_average"; }
  bool forgets() const override { return true; }
  std::optional<RunningRange> running_range() const override {
    return RunningRange{kept(), averaging_constant_, steps_};
  }
  void reset() override;
  std::vector<NamedBuffer> state() const override;

 protected:
  void update(const Extremes& step) override;

 private:
  float averaging_constant_;
  Tensor steps_;  // i64
};

}  // namespace steelyard::observers
