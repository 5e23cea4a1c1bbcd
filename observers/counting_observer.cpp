#include "steelyard/observers/counting_observer.h"

#include <limits>

#include "steelyard/framework/on_device.h"

namespace steelyard::observers {

CountingObserver::CountingObserver(std::int64_t channels, std::int64_t bins)
    : bins_(bins),
      counts_(Tensor::empty({channels, bins}, DType::kI64)),
      exponent_(Tensor::empty({channels}, DType::kI32)),
      seen_{Tensor::empty({channels}), Tensor::empty({channels})} {
  CountingObserver::reset();
}

void CountingObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                               const Tensor& non_finite) {
  count(layout, values, extremes_of(layout, values, non_finite));
}

void CountingObserver::count(const kernels::ChannelLayout& layout, const Tensor& values,
                             const Extremes& step) {
  run(values.device(), kernels::GrowHistograms{.histograms = histograms(),
                                               .step_lo = step.lo.data<float>(),
                                               .step_hi = step.hi.data<float>()});
  run(values.device(),
      kernels::CountInHistograms{
          .histograms = histograms(), .layout = layout, .x = values.data<float>()});
}

Extremes CountingObserver::range() const {
  const Extremes range{Tensor::empty(exponent_.shape(), DType::kF64, device()),
                       Tensor::empty(exponent_.shape(), DType::kF64, device())};
  write_range(range);
  return range;
}

kernels::ChannelHistograms CountingObserver::histograms() const {
  return {exponent_.size(),
          bins_,
          counts_.data<std::int64_t>(),
          exponent_.data<std::int32_t>(),
          seen_.lo.data<float>(),
          seen_.hi.data<float>()};
}

void CountingObserver::reset() {
  counts_.fill(0);
  exponent_.fill(0);
  seen_.lo.fill(std::numeric_limits<float>::infinity());
  seen_.hi.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> CountingObserver::state() const {
  return {{"counts", counts_}, {"exponent", exponent_}, {"min", seen_.lo}, {"max", seen_.hi}};
}

}  // namespace steelyard::observers
