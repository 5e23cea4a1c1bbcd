#include "steelyard/observers/moving_percentile.h"

#include <limits>
#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/percentile/percentile.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::observers {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

MovingPercentileObserver::MovingPercentileObserver(std::int64_t channels, const QScheme& scheme,
                                                   double percentile, double averaging_constant)
    : percentile_(percentile),
      averaging_constant_(averaging_constant),
      symmetric_(scheme.symmetric),
      state_{Tensor::empty({channels}), Tensor::empty({channels})},
      steps_(Tensor::empty({channels}, DType::kI64)) {
  if (!(percentile > 50 && percentile <= 100)) {
    throw std::invalid_argument("[moving_percentile] expected a percentile in (50, 100], got " +
                                std::to_string(percentile));
  }
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument(
        "[moving_percentile] expected an averaging constant in (0, 1], got " +
        std::to_string(averaging_constant));
  }
  MovingPercentileObserver::reset();
}

void MovingPercentileObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                                       const Tensor& non_finite) {
  const Extremes step = extremes_of(layout, values, non_finite);
  const Device device = values.device();
  // Each step is a first one; a step without finite values leaves the range empty.
  const Tensor seen = Tensor::empty({1}, DType::kI64, device);
  const Extremes percentiles{Tensor::empty({layout.channels}, DType::kF64, device),
                             Tensor::empty({layout.channels}, DType::kF64, device)};
  seen.fill(0);
  percentiles.lo.fill(kInfinity);
  percentiles.hi.fill(-kInfinity);
  run(device, kernels::PercentilesOfFirstStep{.layout = layout,
                                              .percentile = percentile_,
                                              .symmetric = symmetric_,
                                              .x = values.data<float>(),
                                              .x_lo = step.lo.data<float>(),
                                              .x_hi = step.hi.data<float>(),
                                              .steps = seen.data<std::int64_t>(),
                                              .lo = percentiles.lo.data<double>(),
                                              .hi = percentiles.hi.data<double>()});
  const Extremes rounded{percentiles.lo.to(DType::kF32), percentiles.hi.to(DType::kF32)};
  run(device, kernels::UpdateExtremes{.n = layout.channels,
                                      .averaging = averaging_constant_,
                                      .step_lo = rounded.lo.data<float>(),
                                      .step_hi = rounded.hi.data<float>(),
                                      .lo = state_.lo.data<float>(),
                                      .hi = state_.hi.data<float>(),
                                      .steps = steps_.data<std::int64_t>()});
}

void MovingPercentileObserver::reset() {
  state_.lo.fill(kInfinity);
  state_.hi.fill(-kInfinity);
  steps_.fill(0);
}

std::vector<NamedBuffer> MovingPercentileObserver::state() const {
  return {{"lo", state_.lo}, {"hi", state_.hi}, {kAveragedSteps, steps_}};
}

}  // namespace steelyard::observers
