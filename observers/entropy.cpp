#include "observers/entropy.h"

#include "framework/on_device.h"
#include "kernels/histogram_ranges.h"

namespace steelyard::observers {

void EntropyObserver::write_range(const Extremes& to) const {
  on_device(device(), [&](auto&... queue) {
    kernels::least_divergence_ranges(queue..., histograms(), scheme_.code_range(),
                                     scheme_.symmetric, to.lo.data<double>(), to.hi.data<double>());
  });
}

}  // namespace steelyard::observers
