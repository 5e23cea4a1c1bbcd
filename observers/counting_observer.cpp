#include "steelyard/observers/counting_observer.h"

#include <limits>

#include "steelyard/framework/tensor/on_device.h"

namespace steelyard::observers {

CountingObserver::Histograms::Histograms(std::int64_t channels, std::int64_t bins, Device device)
    : counts(Tensor::empty({channels, bins}, DType::kI64, device)),
      exponent(Tensor::empty({channels}, DType::kI32, device)),
      seen{Tensor::empty({channels}, DType::kF32, device),
           Tensor::empty({channels}, DType::kF32, device)} {
  clear();
}

kernels::ChannelHistograms CountingObserver::Histograms::view() const {
  return {exponent.size(),
          counts.dim(1),
          counts.data<std::int64_t>(),
          exponent.data<std::int32_t>(),
          seen.lo.data<float>(),
          seen.hi.data<float>()};
}

void CountingObserver::Histograms::grow(const Extremes& step) const {
  run(counts.device(), kernels::GrowHistograms{.histograms = view(),
                                               .step_lo = step.lo.data<float>(),
                                               .step_hi = step.hi.data<float>()});
}

void CountingObserver::Histograms::clear() const {
  counts.fill(0);
  exponent.fill(0);
  seen.lo.fill(std::numeric_limits<float>::infinity());
  seen.hi.fill(-std::numeric_limits<float>::infinity());
}

CountingObserver::CountingObserver(std::int64_t channels, std::int64_t bins)
    : all_(channels, bins, Device{}) {}

void CountingObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                               const Tensor& non_finite) {
  count(layout, values, extremes_of(layout, values, non_finite));
}

void CountingObserver::count(const kernels::ChannelLayout& layout, const Tensor& values,
                             const Extremes& step) {
  const Histograms& to = gathered_ ? *gathered_ : all_;
  to.grow(step);
  run(values.device(), kernels::CountInHistograms{
                           .histograms = to.view(), .layout = layout, .x = values.data<float>()});
}

Extremes CountingObserver::range() const {
  const Extremes range{Tensor::empty(all_.exponent.shape(), DType::kF64, device()),
                       Tensor::empty(all_.exponent.shape(), DType::kF64, device())};
  write_range(range);
  return range;
}

void CountingObserver::reset() { all_.clear(); }

std::vector<NamedBuffer> CountingObserver::state() const {
  return {{"counts", all_.counts},
          {"exponent", all_.exponent},
          {"min", all_.seen.lo},
          {"max", all_.seen.hi}};
}

void CountingObserver::begin_step() {
  gathered_.emplace(all_.exponent.size(), all_.counts.dim(1), device());
}

std::vector<Tensor> CountingObserver::maxima() {
  maxima_ = no_extremes(gathered_->seen.lo);
  gather_extremes(gathered_->seen, maxima_);
  return {maxima_};
}

// The width of bins follows from the extremes, so those of every part and of what was seen before
// are equal once all have seen all of them.
std::vector<Tensor> CountingObserver::counts() {
  gathered_->grow(gathered_extremes(maxima_));
  gathered_->grow(all_.seen);
  return {gathered_->counts};
}

void CountingObserver::end_step() {
  all_.grow(gathered_->seen);
  run(device(), kernels::AddHistograms{.n = all_.counts.size(),
                                       .counts = gathered_->counts.data<std::int64_t>(),
                                       .to = all_.counts.data<std::int64_t>()});
  gathered_.reset();
}

}  // namespace steelyard::observers
