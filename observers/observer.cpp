#include "observers/observer.h"

#include <numeric>
#include <stdexcept>

#include "kernels/reduce.h"

namespace steelyard::observers {

Extremes extremes_of(const kernels::ChannelLayout& layout, const float* values) {
  const auto channels = static_cast<std::size_t>(layout.channels);
  Extremes extremes{std::vector<float>(channels), std::vector<float>(channels), 0};
  std::vector<std::int64_t> skipped(channels);
  kernels::min_max(layout, values, extremes.lo.data(), extremes.hi.data(), skipped.data());
  extremes.non_finite = std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0});
  return extremes;
}

void Observer::observe_extremes(const Extremes&) {
  throw std::logic_error("[observer] " + name() + " needs the values, not their extremes");
}

}  // namespace steelyard::observers
