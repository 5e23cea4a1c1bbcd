#include "observers/moving_average.h"

#include <stdexcept>

#include "kernels/qparams.h"

namespace steelyard::observers {

MovingAverageObserver::MovingAverageObserver(std::int64_t channels, double averaging_constant)
    : MinMaxObserver(channels), averaging_constant_(static_cast<float>(averaging_constant)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[moving_average] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
}

void MovingAverageObserver::update(float& lo, float& hi, float step_lo, float step_hi) const {
  lo = kernels::moving_average(lo, step_lo, averaging_constant_);
  hi = kernels::moving_average(hi, step_hi, averaging_constant_);
}

}  // namespace steelyard::observers
