#include "steelyard/kernels/histogram_ranges/histogram_ranges.h"

#include <vector>

#include "steelyard/kernels/cpu/each_histogram.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/histogram_ranges/clipping_divergence.h"
#include "steelyard/kernels/histogram_ranges/clipping_error.h"
#include "steelyard/kernels/prefix_sums.h"

namespace steelyard::kernels {
namespace {

// Three rows of prefix sums of term(bin, row) over `bins` bins, [3, bins + 1].
template <typename Term>
void three_sums(std::int32_t bins, double* sums, const Term& term) {
  for (int row = 0; row < 3; ++row) {
    prefix_sums(
        bins, [&](std::int32_t bin) { return term(bin, row); }, sums + row * (bins + 1));
  }
}

Least best_of(const ClippingErrors& errors, const Clippings& clippings) {
  Least best;
  for (std::int32_t i = 0; i < clippings.count(); ++i) best.meet(errors.error(clippings.at(i)), i);
  return best;
}

RangeEnds least_error_range(const ChannelHistograms& h, CodeRange range, bool symmetric) {
  if (h.lo[0] == 0 && h.hi[0] == 0) return {0, 0};
  const auto bins = static_cast<std::int32_t>(h.bins);
  std::vector<double> sums(3 * (h.bins + 1));
  const ClippingErrors errors(h, 0, range, symmetric, sums.data());
  three_sums(bins, sums.data(),
             [&](std::int32_t bin, int power) { return errors.moment(bin, power); });
  const Clippings coarse = errors.coarse();
  const Least rough = best_of(errors, coarse);
  const Clipping best = coarse.at(rough.index);
  if (symmetric) return errors.range_of(best);
  const Clippings fine = errors.fine(coarse, best);
  const Least finest = best_of(errors, fine);
  return errors.range_of(finest.value < rough.value ? fine.at(finest.index) : best);
}

RangeEnds least_divergence_range(const ChannelHistograms& h, CodeRange range, bool symmetric) {
  const DivergenceWindow window(h, 0, range, symmetric);
  const std::int32_t bins = window.bins();
  std::vector<double> sums(3 * (std::size_t(bins) + 1));
  three_sums(bins, sums.data(),
             [&](std::int32_t bin, int row) { return Divergences::term(window.count(bin), row); });
  const Divergences divergences(sums.data(), bins + 1);
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
