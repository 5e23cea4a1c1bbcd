#include "observers/moving_average.h"

#include <stdexcept>

namespace steelyard::observers {

MovingAverageObserver::MovingAverageObserver(std::int64_t channels, double averaging_constant)
    : MinMaxObserver(channels), averaging_constant_(static_cast<float>(averaging_constant)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[moving_average] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
}

void MovingAverageObserver::update(float& lo, float& hi, float step_lo, float step_hi) const {
  // In double: the difference of two large floats may not be one.
  const auto follow = [c = static_cast<double>(averaging_constant_)](double m, double x) {
    return static_cast<float>(m + c * (x - m));
  };
  lo = follow(lo, step_lo);
  hi = follow(hi, step_hi);
}

}  // namespace steelyard::observers
