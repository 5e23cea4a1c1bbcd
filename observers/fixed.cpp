#include "steelyard/observers/fixed.h"

namespace steelyard::observers {

FixedObserver::FixedObserver(std::int64_t channels, double limit)
    : range_{Tensor::zeros({channels}), Tensor::full({channels}, limit)} {}

void FixedObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                            const Tensor& non_finite) {
  extremes_of(layout, values, non_finite);  // counts what is not finite
}

std::vector<NamedBuffer> FixedObserver::state() const {
  return {{"min", range_.lo}, {"max", range_.hi}};
}

}  // namespace steelyard::observers
