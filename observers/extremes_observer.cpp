#include "steelyard/observers/extremes_observer.h"

#include <limits>

namespace steelyard::observers {

ExtremesObserver::ExtremesObserver(std::int64_t channels)
    : range_{Tensor::empty({channels}), Tensor::empty({channels})} {
  ExtremesObserver::reset();
}

void ExtremesObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                               const Tensor& non_finite) {
  if (values.size() == 0) return;
  const Extremes step = extremes_of(layout, values, non_finite);
  if (gathered_.defined()) {
    gather_extremes(step, gathered_);
  } else {
    update(step);
  }
}

void ExtremesObserver::reset() {
  range_.lo.fill(std::numeric_limits<float>::infinity());
  range_.hi.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> ExtremesObserver::state() const {
  return {{"min", range_.lo}, {"max", range_.hi}};
}

void ExtremesObserver::begin_step() { gathered_ = no_extremes(range_.lo); }

void ExtremesObserver::end_step() {
  update(gathered_extremes(gathered_));
  gathered_ = Tensor();
}

}  // namespace steelyard::observers
