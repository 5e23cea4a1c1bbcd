#include "observers/percentile.h"

#include <limits>
#include <stdexcept>

#include "framework/on_device.h"
#include "kernels/percentile.h"

namespace steelyard::observers {

PercentileObserver::PercentileObserver(std::int64_t channels, const QScheme& scheme,
                                       double percentile)
    : CountingObserver(channels),
      percentile_(percentile),
      symmetric_(scheme.symmetric),
      steps_(Tensor::zeros({1}, DType::kI64)),
      first_{Tensor::empty({channels}, DType::kF64), Tensor::empty({channels}, DType::kF64)} {
  if (!(percentile > 50 && percentile <= 100)) {
    throw std::invalid_argument("[percentile] expected a percentile in (50, 100], got " +
                                std::to_string(percentile));
  }
  PercentileObserver::reset();
}

void PercentileObserver::count(const kernels::ChannelLayout& layout, const Tensor& values,
                               const Extremes& step) {
  CountingObserver::count(layout, values, step);
  on_device(device(), [&](auto&... queue) {
    kernels::percentiles_of_first_step(queue..., layout, percentile_, symmetric_,
                                       values.data<float>(), step.lo.data<float>(),
                                       step.hi.data<float>(), steps_.data<std::int64_t>(),
                                       first_.lo.data<double>(), first_.hi.data<double>());
  });
}

void PercentileObserver::write_range(const Extremes& to) const {
  on_device(device(), [&](auto&... queue) {
    kernels::percentile_ranges(queue..., histograms(), percentile_, symmetric_,
                               steps_.data<std::int64_t>(), first_.lo.data<double>(),
                               first_.hi.data<double>(), to.lo.data<double>(),
                               to.hi.data<double>());
  });
}

void PercentileObserver::reset() {
  CountingObserver::reset();
  steps_.fill(0);
  first_.lo.fill(std::numeric_limits<double>::infinity());
  first_.hi.fill(-std::numeric_limits<double>::infinity());
}

std::vector<NamedBuffer> PercentileObserver::state() const {
  std::vector<NamedBuffer> state = CountingObserver::state();
  state.push_back({"steps", steps_});
  state.push_back({"first_lo", first_.lo});
  state.push_back({"first_hi", first_.hi});
  return state;
}

}  // namespace steelyard::observers
