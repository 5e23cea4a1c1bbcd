#include "observers/min_max.h"

#include <limits>

#include "framework/on_device.h"
#include "kernels/quantizer_state.h"

namespace steelyard::observers {

MinMaxObserver::MinMaxObserver(std::int64_t channels)
    : state_{Tensor::empty({channels}), Tensor::empty({channels})} {
  MinMaxObserver::reset();
}

void MinMaxObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                             const Tensor& non_finite) {
  observe_extremes(extremes_of(layout, values, non_finite));
}

void MinMaxObserver::observe_extremes(const Extremes& extremes) { update(state_, extremes); }

void MinMaxObserver::update(const Extremes& state, const Extremes& step) const {
  on_device(state.lo.device(), [&](auto&... queue) {
    kernels::update_extremes(queue..., state.lo.size(), step.lo.data<float>(),
                             step.hi.data<float>(), state.lo.data<float>(), state.hi.data<float>());
  });
}

void MinMaxObserver::reset() {
  state_.lo.fill(std::numeric_limits<float>::infinity());
  state_.hi.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> MinMaxObserver::state() const {
  return {{"min", state_.lo}, {"max", state_.hi}};
}

}  // namespace steelyard::observers
