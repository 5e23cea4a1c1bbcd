#include "steelyard/observers/moving_average.h"

#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::observers {

MovingAverageObserver::MovingAverageObserver(std::int64_t channels, double averaging_constant)
    : ExtremesObserver(channels),
      averaging_constant_(static_cast<float>(averaging_constant)),
      steps_(Tensor::zeros({channels}, DType::kI64)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[moving_average] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
}

void MovingAverageObserver::update(const Extremes& step) {
  run(kept().lo.device(), kernels::UpdateExtremes{.n = kept().lo.size(),
                                                  .averaging = averaging_constant_,
                                                  .step_lo = step.lo.data<float>(),
                                                  .step_hi = step.hi.data<float>(),
                                                  .lo = kept().lo.data<float>(),
                                                  .hi = kept().hi.data<float>(),
                                                  .steps = steps_.data<std::int64_t>()});
}

void MovingAverageObserver::reset() {
  ExtremesObserver::reset();
  steps_.fill(0);
}

std::vector<NamedBuffer> MovingAverageObserver::state() const {
  std::vector<NamedBuffer> state = ExtremesObserver::state();
  state.push_back({kAveragedSteps, steps_});
  return state;
}

}  // namespace steelyard::observers
