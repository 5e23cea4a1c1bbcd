// Exponential moving average of each step's extremes: m + c * (x - m).
// Source: Jacob et al., "Quantization and Training of Neural Networks", 2018, section 3.1.
#pragma once

#include "observers/min_max.h"

namespace steelyard::observers {

class MovingAverageObserver : public MinMaxObserver {
 public:
  // averaging_constant c in (0, 1]: the weight of the newest step.
  MovingAverageObserver(std::int64_t channels, double averaging_constant);

  std::string name() const override { return "moving_average"; }
  bool forgets() const override { return true; }
  std::optional<RunningRange> running_range() const override {
    return RunningRange{range(), averaging_constant_};
  }

 private:
  float averaging_constant_;
};

}  // namespace steelyard::observers
