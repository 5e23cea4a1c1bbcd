#include "steelyard/observers/min_max.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"

namespace steelyard::observers {

void MinMaxObserver::update(const Extremes& step) {
  run(kept().lo.device(), kernels::UpdateExtremes{.n = kept().lo.size(),
                                                  .averaging = 0,
                                                  .step_lo = step.lo.data<float>(),
                                                  .step_hi = step.hi.data<float>(),
                                                  .lo = kept().lo.data<float>(),
                                                  .hi = kept().hi.data<float>(),
                                                  .steps = nullptr});
}

}  // namespace steelyard::observers
