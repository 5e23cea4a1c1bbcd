#include "steelyard/observers/entropy.h"

#include "steelyard/framework/tensor/on_device.h"
#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"

namespace steelyard::observers {

void EntropyObserver::write_range(const Extremes& to) const {
  run(device(), kernels::LeastDivergenceRanges{.histograms = histograms(),
                                               .range = scheme_.code_range(),
                                               .symmetric = scheme_.symmetric,
                                               .lo = to.lo.data<double>(),
                                               .hi = to.hi.data<double>()});
}

}  // namespace steelyard::observers
