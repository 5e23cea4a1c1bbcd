#include "steelyard/observers/percentile.h"

#include <limits>
#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/percentile/percentile.h"

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
  run(device(), kernels::PercentilesOfFirstStep{.layout = layout,
                                                .percentile = percentile_,
                                                .symmetric = symmetric_,
                                                .x = values.data<float>(),
                                                .x_lo = step.lo.data<float>(),
                                                .x_hi = step.hi.data<float>(),
                                                .steps = steps_.data<std::int64_t>(),
                                                .lo = first_.lo.data<double>(),
                                                .hi = first_.hi.data<double>()});
}

void PercentileObserver::write_range(const Extremes& to) const {
  run(device(), kernels::PercentileRanges{.histograms = histograms(),
                                          .percentile = percentile_,
                                          .symmetric = symmetric_,
                                          .steps = steps_.data<std::int64_t>(),
                                          .first_lo = first_.lo.data<double>(),
                                          .first_hi = first_.hi.data<double>(),
                                          .lo = to.lo.data<double>(),
                                          .hi = to.hi.data<double>()});
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
