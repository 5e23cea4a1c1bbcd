#include "steelyard/observers/fixed.h"

#include <limits>

namespace steelyard::observers {

FixedObserver::FixedObserver(std::int64_t channels, double limit)
    : limit_(limit), state_{Tensor::empty({channels}), Tensor::empty({channels})} {
  FixedObserver::reset();
}

void FixedObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                            const Tensor& non_finite) {
  if (values.size() == 0) return;
  extremes_of(layout, values, non_finite);  // counts what is not finite
  state_.lo.fill(0);
  state_.hi.fill(limit_);
}

void FixedObserver::reset() {
  state_.lo.fill(std::numeric_limits<float>::infinity());
  state_.hi.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> FixedObserver::state() const {
  return {{"min", state_.lo}, {"max", state_.hi}};
}

}  // namespace steelyard::observers
