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

std::vector<Range> MinMaxObserver::ranges() const {
  const Tensor lo = state_.lo.to(Device{});
  const Tensor hi = state_.hi.to(Device{});
  std::vector<Range> ranges;
  for (std::int64_t c = 0; c < lo.size(); ++c) {
    ranges.push_back({lo.data<float>()[c], hi.data<float>()[c]});
  }
  return ranges;
}

void MinMaxObserver::write_qparams(const QScheme& scheme, const QParamTensors& to) const {
  on_device(state_.lo.device(), [&](auto&... queue) {
    kernels::qparams_of_ranges(queue..., state_.lo.size(), scheme.code_range(), scheme.symmetric,
                               state_.lo.data<float>(), state_.hi.data<float>(),
                               to.scale.data<float>(), to.zero_point.data<std::int32_t>(),
                               to.zero_range.data<std::uint8_t>());
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
