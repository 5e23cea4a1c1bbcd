#include "steelyard/observers/min_max.h"

#include <limits>

#include "steelyard/framework/on_device.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::observers {

MinMaxObserver::MinMaxObserver(std::int64_t channels)
    : state_{Tensor::empty({channels}), Tensor::empty({channels})} {
  MinMaxObserver::reset();
}

void MinMaxObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                             const Tensor& non_finite) {
  const Extremes step = extremes_of(layout, values, non_finite);
  run(state_.lo.device(), kernels::UpdateExtremes{.n = state_.lo.size(),
                                                  .step_lo = step.lo.data<float>(),
                                                  .step_hi = step.hi.data<float>(),
                                                  .lo = state_.lo.data<float>(),
                                                  .hi = state_.hi.data<float>()});
}

void MinMaxObserver::reset() {
  state_.lo.fill(std::numeric_limits<float>::infinity());
  state_.hi.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> MinMaxObserver::state() const {
  return {{"min", state_.lo}, {"max", state_.hi}};
}

}  // namespace steelyard::observers
