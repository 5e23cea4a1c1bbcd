#include "observers/moving_average.h"

#include <stdexcept>

#include "framework/on_device.h"
#include "kernels/quantizer_state.h"

namespace steelyard::observers {

MovingAverageObserver::MovingAverageObserver(std::int64_t channels, double averaging_constant)
    : MinMaxObserver(channels), averaging_constant_(static_cast<float>(averaging_constant)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[moving_average] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
}

void MovingAverageObserver::update(const Extremes& state, const Extremes& step) const {
  on_device(state.lo.device(), [&](auto&... queue) {
    kernels::update_average_extremes(queue..., state.lo.size(), averaging_constant_,
                                     step.lo.data<float>(), step.hi.data<float>(),
                                     state.lo.data<float>(), state.hi.data<float>());
  });
}

}  // namespace steelyard::observers
