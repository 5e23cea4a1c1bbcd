#include "steelyard/observers/moving_average.h"

#include <limits>
#include <stdexcept>

#include "steelyard/framework/on_device.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::observers {

MovingAverageObserver::MovingAverageObserver(std::int64_t channels, double averaging_constant)
    : averaging_constant_(static_cast<float>(averaging_constant)),
      state_{Tensor::empty({channels}), Tensor::empty({channels})},
      steps_(Tensor::empty({channels}, DType::kI64)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[moving_average] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
  MovingAverageObserver::reset();
}

void MovingAverageObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                                    const Tensor& non_finite) {
  const Extremes step = extremes_of(layout, values, non_finite);
  run(state_.lo.device(), kernels::UpdateAverageExtremes{.n = state_.lo.size(),
                                                         .constant = averaging_constant_,
                                                         .step_lo = step.lo.data<float>(),
                                                         .step_hi = step.hi.data<float>(),
                                                         .lo = state_.lo.data<float>(),
                                                         .hi = state_.hi.data<float>(),
                                                         .steps = steps_.data<std::int64_t>()});
}

void MovingAverageObserver::reset() {
  state_.lo.fill(std::numeric_limits<float>::infinity());
  state_.hi.fill(-std::numeric_limits<float>::infinity());
  steps_.fill(0);
}

std::vector<NamedBuffer> MovingAverageObserver::state() const {
  return {{"min", state_.lo}, {"max", state_.hi}, {kAveragedSteps, steps_}};
}

}  // namespace steelyard::observers
