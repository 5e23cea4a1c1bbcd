#include "kernels/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vectorize.h"
#include "kernels/histogram_bin.h"

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
template <typename T>
void find_bins(const HistogramGrid& grid, T inverse_width, std::int64_t count, const T* x,
               std::int32_t* bin) {
  const std::int32_t bins = static_cast<std::int32_t>(grid.bins);
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

  // Moves the counts to `totals` (one per bin) and returns those of the non-finite slot.
  std::int64_t flush(std::uint64_t* totals) {
    std::int64_t non_finite = 0;
    for (std::int64_t copy = 0; copy < copies_; ++copy) {
      const std::uint32_t* table = counters_.data() + copy * slots_;
      for (std::int64_t b = 0; b + 1 < slots_; ++b) totals[b] += table[b];
      non_finite += table[slots_ - 1];
    }
    std::fill(counters_.begin(), counters_.end(), 0U);
    return non_finite;
  }

 private:
  std::int64_t slots_;
  std::int64_t copies_;
  std::vector<std::uint32_t> counters_;
};

}  // namespace

int histogram_exponent(double amax, std::int64_t bins) {
  constexpr int kSmallest = std::numeric_limits<float>::min_exponent - 1;  // 2^-126
  if (amax <= 0) return kSmallest;
  // amax = fraction * 2^e with fraction in [0.5, 1), so amax < 2^e: e - log2(bins / 2) rounded up
  // covers it, and one less may as well (the upper end is open, so amax itself must lie below).
  const double half = static_cast<double>(bins / 2);
  int exponent = 0;
  std::frexp(amax, &exponent);
  exponent = std::max(kSmallest, exponent - std::ilogb(half));
  while (exponent > kSmallest && amax < std::ldexp(half, exponent - 1)) --exponent;
  return exponent;
}

template <typename T>
void histogram_accumulate(const HistogramGrid& grid, std::int64_t n, const T* x,
                          std::uint64_t* counts, std::int64_t* non_finite) {
  const T inverse_width = histogram_inverse_width<T>(grid);
  std::int64_t skipped = 0;
  std::mutex mutex;
  parallel_for(n, kGrain, [&](std::int64_t begin, std::int64_t end) {
    PartialCounts partial(grid.bins);
    std::int32_t bin[kBatch];
    while (begin < end) {
      const std::int64_t stop = std::min(end, begin + kCounterLimit);
      for (; begin < stop; begin += kBatch) {
        const std::int64_t count = std::min(kBatch, stop - begin);
        find_bins(grid, inverse_width, count, x + begin, bin);
        partial.add(count, bin);
      }
      begin = stop;
      const std::lock_guard<std::mutex> lock(mutex);
      skipped += partial.flush(counts);
    }
  });
  if (non_finite != nullptr) *non_finite += skipped;
}

void histogram_grow(std::int64_t bins, int doublings, std::uint64_t* counts) {
  const std::int64_t half = bins / 2;
  for (int step = 0; step < std::min(doublings, 64); ++step) {
    // Bin b covers multiples b - half of the width; floor((b - half) / 2) is its new place. Walking
    // outwards from zero, a bin is read before it is overwritten.
    for (std::int64_t k = 0; k < half; ++k) {
      const bool odd_edge = 2 * k + 1 >= half;
      const std::uint64_t first = 2 * k < half ? counts[half + 2 * k] : 0;
      counts[half + k] = first + (odd_edge ? 0 : counts[half + 2 * k + 1]);
    }
    for (std::int64_t k = 1; k <= half; ++k) {
      const std::uint64_t near = 2 * k - 1 <= half ? counts[half - (2 * k - 1)] : 0;
      counts[half - k] = near + (2 * k <= half ? counts[half - 2 * k] : 0);
    }
  }
}

template void histogram_accumulate(const HistogramGrid&, std::int64_t, const float*, std::uint64_t*,
                                   std::int64_t*);
template void histogram_accumulate(const HistogramGrid&, std::int64_t, const double*,
                                   std::uint64_t*, std::int64_t*);

}  // namespace steelyard::kernels
