#include "steelyard/observers/mse.h"

#include <limits>
#include <stdexcept>

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/shrunken_range/shrunken_range.h"

namespace steelyard::observers {

MseObserver::MseObserver(std::int64_t channels, const QScheme& scheme, double averaging_constant)
    : scheme_(scheme),
      averaging_constant_(averaging_constant),
      state_{Tensor::empty({channels}), Tensor::empty({channels})},
      steps_(Tensor::empty({channels}, DType::kI64)) {
  if (!(averaging_constant > 0 && averaging_constant <= 1)) {
    throw std::invalid_argument("[mse] expected an averaging constant in (0, 1], got " +
                                std::to_string(averaging_constant));
  }
  MseObserver::reset();
}

void MseObserver::observe(const kernels::ChannelLayout& layout, const Tensor& values,
                          const Tensor& non_finite) {
  const Extremes step = extremes_of(layout, values, non_finite);
  const Device device = values.device();
  const Extremes best{Tensor::empty({layout.channels}, DType::kF32, device),
                      Tensor::empty({layout.channels}, DType::kF32, device)};
  run(device, kernels::LeastErrorShrinkings{.layout = layout,
                                            .range = scheme_.code_range(),
                                            .symmetric = scheme_.symmetric,
                                            .x = values.data<float>(),
                                            .lo = step.lo.data<float>(),
                                            .hi = step.hi.data<float>(),
                                            .best_lo = best.lo.data<float>(),
                                            .best_hi = best.hi.data<float>()});
  run(device, kernels::UpdateExtremes{.n = layout.channels,
                                      .averaging = averaging_constant_,
                                      .step_lo = best.lo.data<float>(),
                                      .step_hi = best.hi.data<float>(),
                                      .lo = state_.lo.data<float>(),
                                      .hi = state_.hi.data<float>(),
                                      .steps = steps_.data<std::int64_t>()});
}

void MseObserver::reset() {
  state_.lo.fill(std::numeric_limits<float>::infinity());
  state_.hi.fill(-std::numeric_limits<float>::infinity());
  steps_.fill(0);
}

std::vector<NamedBuffer> MseObserver::state() const {
  return {{"lo", state_.lo}, {"hi", state_.hi}, {kAveragedSteps, steps_}};
}

}  // namespace steelyard::observers
