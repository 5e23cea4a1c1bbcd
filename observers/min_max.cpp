#include "observers/min_max.h"

#include <limits>

#include "kernels/quantizer_state.h"

namespace steelyard::observers {

MinMaxObserver::MinMaxObserver(std::int64_t channels)
    : min_(Tensor::empty({channels})), max_(Tensor::empty({channels})) {
  MinMaxObserver::reset();
}

std::int64_t MinMaxObserver::observe(const kernels::ChannelLayout& layout, const float* values) {
  const Extremes extremes = extremes_of(layout, values);
  observe_extremes(extremes);
  return extremes.non_finite;
}

void MinMaxObserver::observe_extremes(const Extremes& extremes) {
  update(extremes, min_.data<float>(), max_.data<float>());
}

void MinMaxObserver::update(const Extremes& step, float* lo, float* hi) const {
  kernels::update_extremes(min_.size(), step.lo.data(), step.hi.data(), lo, hi);
}

std::vector<Range> MinMaxObserver::ranges() const {
  std::vector<Range> ranges;
  for (std::int64_t c = 0; c < min_.size(); ++c) {
    ranges.push_back({min_.data<float>()[c], max_.data<float>()[c]});
  }
  return ranges;
}

void MinMaxObserver::reset() {
  min_.fill(std::numeric_limits<float>::infinity());
  max_.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> MinMaxObserver::state() const { return {{"min", min_}, {"max", max_}}; }

}  // namespace steelyard::observers
