#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"

#include <vector>

#include "steelyard/kernels/clipping_error.h"
#include "steelyard/kernels/cpu/each_histogram.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/divergence.h"
#include "steelyard/kernels/prefix_sums.h"

namespace steelyard::kernels {
namespace {

// Three rows of prefix sums over `bins` bins.
struct ThreeSums {
  explicit ThreeSums(std::int32_t bins)
      : a(static_cast<std::size_t>(bins) + 1), b(a.size()), c(a.size()) {}
  std::vector<double> a, b, c;
};

Least best_of(const ClippingErrors& errors, const Clippings& clippings) {
  Least best;
  for (std::int32_t i = 0; i < clippings.count(); ++i) best.meet(errors.error(clippings.at(i)), i);
  return best;
}

RangeEnds least_error_range(const ChannelHistograms& h, CodeRange range, bool symmetric) {
  if (h.lo[0] == 0 && h.hi[0] == 0) return {0, 0};
  const auto bins = static_cast<std::int32_t>(h.bins);
  ThreeSums sums(bins);
  const ClippingErrors errors(bins, h.exponent[0], h.lo[0], h.hi[0], range, symmetric,
                              sums.a.data(), sums.b.data(), sums.c.data());
  const auto moment = [&](int power) {
    return [&errors, counts = h.counts, power](std::int32_t bin) {
      return errors.moment(counts, bin, power);
    };
  };
  prefix_sums(bins, moment(0), sums.a.data());
  prefix_sums(bins, moment(1), sums.b.data());
  prefix_sums(bins, moment(2), sums.c.data());
  const Clippings coarse = errors.coarse();
  const Least rough = best_of(errors, coarse);
  const Clipping best = coarse.at(rough.index);
  if (symmetric) return errors.range_of(best);
  const Clippings fine = errors.fine(coarse, best);
  const Least finest = best_of(errors, fine);
  return errors.range_of(finest.value < rough.value ? fine.at(finest.index) : best);
}

RangeEnds least_divergence_range(const ChannelHistograms& h, CodeRange range, bool symmetric) {
  const DivergenceWindow window(h.counts, h.bins, h.exponent[0], h.lo[0], h.hi[0], range,
                                symmetric);
  const std::int32_t bins = window.bins();
  ThreeSums sums(bins);
  prefix_sums(
      bins, [&](std::int32_t b) { return window.count(b); }, sums.a.data());
  prefix_sums(
      bins, [&](std::int32_t b) { return window.count(b) > 0 ? 1.0 : 0.0; }, sums.b.data());
  prefix_sums(
      bins, [&](std::int32_t b) { return n_log_n(window.count(b)); }, sums.c.data());
  const Divergences divergences(sums.a.data(), sums.b.data(), sums.c.data());
  Least best;
  for (std::int32_t i = 0; i < window.widest(); ++i) {
    best.meet(window.divergence(divergences, i), i);
  }
  return window.range_of(window.reach(best.index));
}

}  // namespace

static void compute(const LeastErrorRanges& k) {
  for_each_channel(k.histograms, k.lo, k.hi, [&](const ChannelHistograms& h) {
    return least_error_range(h, k.range, k.symmetric);
  });
}

static void compute(const LeastDivergenceRanges& k) {
  for_each_channel(k.histograms, k.lo, k.hi, [&](const ChannelHistograms& h) {
    return least_divergence_range(h, k.range, k.symmetric);
  });
}

template struct CpuKernels<HistogramRangesKernels>;

}  // namespace steelyard::kernels
