#include "observers/counting_observer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/histogram.h"

namespace steelyard::observers {

CountingObserver::CountingObserver(std::int64_t channels, std::int64_t bins)
    : bins_(bins),
      counts_(Tensor::empty({channels, bins}, DType::kI64)),
      exponent_(Tensor::empty({channels}, DType::kI32)),
      min_(Tensor::empty({channels})),
      max_(Tensor::empty({channels})) {
  CountingObserver::reset();
}

std::int64_t CountingObserver::observe_values(const kernels::ChannelLayout& layout,
                                              const float* values) {
  const HostExtremes extremes = host_extremes_of(layout, values);
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    const auto i = static_cast<std::size_t>(c);
    if (extremes.lo[i] > extremes.hi[i]) continue;
    grow_to(c, extremes.lo[i], extremes.hi[i]);
    const kernels::HistogramGrid grid{exponent_.data<std::int32_t>()[c], bins_};
    auto* counts = reinterpret_cast<std::uint64_t*>(counts_.data<std::int64_t>()) + c * bins_;
    if (layout.channels == 1) {
      kernels::histogram_accumulate(grid, layout.size(), values, counts, nullptr);
      continue;
    }
    const std::vector<float> gathered = finite_values(layout, values, c);
    kernels::histogram_accumulate(grid, static_cast<std::int64_t>(gathered.size()), gathered.data(),
                                  counts, nullptr);
  }
  return extremes.non_finite;
}

void CountingObserver::grow_to(std::int64_t channel, float step_lo, float step_hi) {
  float& lo = min_.data<float>()[channel];
  float& hi = max_.data<float>()[channel];
  std::int32_t& exponent = exponent_.data<std::int32_t>()[channel];
  const bool first = lo > hi;
  lo = std::min(lo, step_lo);
  hi = std::max(hi, step_hi);
  const double amax =
      std::max(std::abs(static_cast<double>(lo)), std::abs(static_cast<double>(hi)));
  const int needed = kernels::histogram_exponent(amax, bins_);
  if (first) {
    exponent = needed;
  } else if (needed > exponent) {
    auto* counts = reinterpret_cast<std::uint64_t*>(counts_.data<std::int64_t>()) + channel * bins_;
    kernels::histogram_grow(bins_, needed - exponent, counts);
    exponent = needed;
  }
}

HistogramView CountingObserver::view(std::int64_t channel) const {
  HistogramView view;
  view.bin_width = std::ldexp(1.0, exponent_.data<std::int32_t>()[channel]);
  view.bins = bins_;
  view.counts = counts_.data<std::int64_t>() + channel * bins_;
  view.extremes = {min_.data<float>()[channel], max_.data<float>()[channel]};
  return view;
}

std::vector<Range> CountingObserver::ranges() const {
  std::vector<Range> ranges(static_cast<std::size_t>(min_.size()));
  kernels::parallel_for(min_.size(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const HistogramView histogram = view(c);
      if (!histogram.extremes.empty()) ranges[static_cast<std::size_t>(c)] = range_of(histogram);
    }
  });
  return ranges;
}

void CountingObserver::reset() {
  counts_.fill(0);
  exponent_.fill(0);
  min_.fill(std::numeric_limits<float>::infinity());
  max_.fill(-std::numeric_limits<float>::infinity());
}

std::vector<NamedBuffer> CountingObserver::host_state() const {
  return {{"counts", counts_}, {"exponent", exponent_}, {"min", min_}, {"max", max_}};
}

std::vector<float> finite_values(const kernels::ChannelLayout& layout, const float* values,
                                 std::int64_t channel) {
  std::vector<float> finite;
  finite.reserve(static_cast<std::size_t>(layout.outer * layout.inner));
  for (std::int64_t o = 0; o < layout.outer; ++o) {
    const float* run = values + (o * layout.channels + channel) * layout.inner;
    std::copy_if(run, run + layout.inner, std::back_inserter(finite),
                 [](float x) { return std::isfinite(x); });
  }
  return finite;
}

}  // namespace steelyard::observers
