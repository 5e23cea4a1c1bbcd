#include "steelyard/kernels/percentile/percentile.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "steelyard/kernels/cpu/each_histogram.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/percentile/formulas.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels {
namespace {

RangeEnds percentile_of_bins(const ChannelHistograms& h, double percentile, bool symmetric) {
  const OrderedBins bins(h, 0, symmetric);
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < bins.bins(); ++b) n += bins.count(b);
  double values[kPercentileRanks];
  for (int i = 0; i < kPercentileRanks; ++i) {
    const std::int64_t k = rank_needed(i, percentile, n);
    std::int64_t bin = 0;
    std::int64_t j = k;
    for (; j >= bins.count(bin); ++bin) j -= bins.count(bin);
    values[i] = bins.value(k, n, bin, j);
  }
  return percentile_range(values, percentile, n, symmetric, h.lo[0], h.hi[0]);
}

// The finite values of one channel, or their magnitudes.
std::vector<float> finite_values(const ChannelLayout& layout, const float* x, std::int64_t channel,
                                 bool magnitudes) {
  std::vector<float> finite;
  finite.reserve(static_cast<std::size_t>(layout.outer * layout.inner));
  for (std::int64_t o = 0; o < layout.outer; ++o) {
    const float* run = x + (o * layout.channels + channel) * layout.inner;
    for (std::int64_t i = 0; i < layout.inner; ++i) {
      if (is_finite(run[i])) finite.push_back(magnitudes ? std::abs(run[i]) : run[i]);
    }
  }
  return finite;
}

RangeEnds percentile_of_values(std::vector<float> values, double percentile, bool symmetric,
                               double lo, double hi) {
  const auto n = static_cast<std::int64_t>(values.size());
  double found[kPercentileRanks] = {};
  for (int i = symmetric ? 2 : 0; i < kPercentileRanks; ++i) {
    const auto nth = values.begin() + rank_needed(i, percentile, n);
    std::nth_element(values.begin(), nth, values.end());
    found[i] = static_cast<double>(*nth) + 0.0;  // never -0
  }
  return percentile_range(found, percentile, n, symmetric, lo, hi);
}

}  // namespace

static void compute(const PercentileRanges& k) {
  if (*k.steps == 1) {
    std::copy_n(k.first_lo, k.histograms.channels, k.lo);
    std::copy_n(k.first_hi, k.histograms.channels, k.hi);
    return;
  }
  for_each_channel(k.histograms, k.lo, k.hi, [&](const ChannelHistograms& h) {
    return percentile_of_bins(h, k.percentile, k.symmetric);
  });
}

static void compute(const PercentilesOfFirstStep& k) {
  bool any = false;
  for (std::int64_t c = 0; c < k.layout.channels; ++c) any = any || k.x_lo[c] <= k.x_hi[c];
  if (!any || ++*k.steps > 1) return;
  parallel_for(k.layout.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      RangeEnds ends{INFINITY, -INFINITY};
      if (k.x_lo[c] <= k.x_hi[c]) {
        ends = percentile_of_values(finite_values(k.layout, k.x, c, k.symmetric), k.percentile,
                                    k.symmetric, k.x_lo[c], k.x_hi[c]);
      }
      k.lo[c] = ends.lo;
      k.hi[c] = ends.hi;
    }
  });
}

template struct CpuKernels<PercentileKernels>;

}  // namespace steelyard::kernels
