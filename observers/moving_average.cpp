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

}  // namespace steelyard::observers
