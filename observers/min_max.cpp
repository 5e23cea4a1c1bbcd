#include "observers/min_max.h"

#include <algorithm>
#include <limits>

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
  float* lo = min_.data<float>();
  float* hi = max_.data<float>();
  for (std::int64_t c = 0; c < min_.size(); ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (extremes.lo[i] > extremes.hi[i]) continue;  // nothing finite: the state stays
    if (lo[c] > hi[c]) {
      lo[c] = extremes.lo[i];
      hi[c] = extremes.hi[i];
    } else {
      update(lo[c], hi[c], extremes.lo[i], extremes.hi[i]);
    }
  }
}

void MinMaxObserver::update(float& lo, float& hi, float step_lo, float step_hi) const {
  lo = std::min(lo, step_lo);
  hi = std::max(hi, step_hi);
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
