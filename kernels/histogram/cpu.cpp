#include "steelyard/kernels/histogram/histogram.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/histogram/formulas.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 65536;
constexpr std::int64_t kBatch = 1024;
// Neighbours often share a bin (zeros after a ReLU): separate copies keep their increments from
// waiting for each other. Four copies of up to 4,096 bins stay in the second-level cache.
constexpr std::int64_t kCopies = 4;
constexpr std::int64_t kMostCopiedBins = 4096;
constexpr std::int64_t kCounterLimit = std::int64_t{1} << 31;

// The bins of count elements; a non-finite element has the extra bin `bins`.
void find_bins(std::int32_t bins, float inverse_width, std::int64_t count, const float* x,
               std::int32_t* bin) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < count; ++i) bin[i] = histogram_bin(x[i], inverse_width, bins);
}

// Counts of one thread's part: kCopies tables of bins + 1 counters when these are small.
class PartialCounts {
 public:
  explicit PartialCounts(std::int64_t bins)
      : slots_(bins + 1),
        copies_(bins <= kMostCopiedBins ? kCopies : 1),
        counters_(static_cast<std::size_t>(slots_ * copies_), 0) {}

  void add(std::int64_t count, const std::int32_t* bin) {
    std::uint32_t* const table = counters_.data();
    std::int64_t i = 0;
    if (copies_ == kCopies) {
      for (; i + kCopies <= count; i += kCopies) {
        for (std::int64_t copy = 0; copy < kCopies; ++copy) {
          ++table[copy * slots_ + bin[i + copy]];
        }
      }
    }
    for (; i < count; ++i) ++table[bin[i]];
  }

  // Moves the counts to `totals`, one per bin.
  void flush(std::int64_t* totals) {
    for (std::int64_t copy = 0; copy < copies_; ++copy) {
      const std::uint32_t* table = counters_.data() + copy * slots_;
      for (std::int64_t b = 0; b + 1 < slots_; ++b) totals[b] += table[b];
    }
    std::fill(counters_.begin(), counters_.end(), 0U);
  }

 private:
  std::int64_t slots_;
  std::int64_t copies_;
  std::vector<std::uint32_t> counters_;
};

// For few elements, where a table would cost more.
void count_few(std::int32_t bins, float inverse_width, std::int64_t n, const float* x,
               std::int64_t* counts) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t bin = histogram_bin(x[i], inverse_width, bins);
    if (bin < bins) ++counts[bin];
  }
}

void count_many(std::int32_t bins, float inverse_width, std::int64_t n, const float* x,
                std::int64_t* counts) {
  std::mutex mutex;
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    PartialCounts partial(bins);
    std::int32_t bin[kBatch];
    while (begin < end) {
      const std::int64_t stop = std::min(end, begin + kCounterLimit);
      for (; begin < stop; begin += kBatch) {
        const std::int64_t count = std::min(kBatch, stop - begin);
        find_bins(bins, inverse_width, count, x + begin, bin);
        partial.add(count, bin);
      }
      begin = stop;
      const std::lock_guard<std::mutex> lock(mutex);
      partial.flush(counts);
    }
  });
}

// Doubles the bin width `doublings` times, merging pairs.
void grow(std::int64_t bins, int doublings, std::int64_t* counts) {
  const std::int64_t half = bins / 2;
  // Walking outwards from zero, a bin is read before it is overwritten.
  for (std::int64_t k = 0; k < half; ++k) {
    counts[half + k] = merged_count(counts + half, 1, half, doublings, k);
    counts[half - 1 - k] = merged_count(counts + half - 1, -1, half, doublings, k);
  }
}

}  // namespace

static void compute(const GrowHistograms& k) {
  const ChannelHistograms& h = k.histograms;
  for (std::int64_t c = 0; c < h.channels; ++c) {
    const GridChange change =
        extend_histogram(h.lo[c], h.hi[c], h.exponent[c], k.step_lo[c], k.step_hi[c], h.bins);
    h.exponent[c] = change.exponent;
    if (change.doublings > 0) grow(h.bins, change.doublings, h.counts + c * h.bins);
  }
}

static void compute(const CountInHistograms& k) {
  const ChannelHistograms& h = k.histograms;
  const std::int64_t n = k.layout.outer * k.layout.inner;
  parallel_for(h.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> gathered;
    for (std::int64_t c = begin; c < end; ++c) {
      const float* values = k.x + c * k.layout.inner;
      if (k.layout.outer > 1 && h.channels > 1) {
        gathered.clear();
        for (std::int64_t o = 0; o < k.layout.outer; ++o) {
          const float* run = values + o * k.layout.channels * k.layout.inner;
          gathered.insert(gathered.end(), run, run + k.layout.inner);
        }
        values = gathered.data();
      }
      const auto count = 4 * n < h.bins ? count_few : count_many;
      count(static_cast<std::int32_t>(h.bins), histogram_inverse_width(h.exponent[c]), n, values,
            h.counts + c * h.bins);
    }
  });
}

template struct CpuKernels<HistogramKernels>;

}  // namespace steelyard::kernels
