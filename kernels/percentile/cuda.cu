#include "steelyard/kernels/percentile/percentile.h"

#include <algorithm>

#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/percentile/formulas.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::kThreads;
using Count = unsigned long long;

constexpr std::int64_t kMostBlocks = 1024;
constexpr std::int64_t kPerThread = 16;
// A rank's value is found by the digits of its key, the highest first.
constexpr int kDigits = 256;
constexpr int kDigitBits = 8;
constexpr int kTables = kPercentileRanks * kDigits;

// One block, one channel.
__global__ void __launch_bounds__(kThreads) range_of_bins_kernel(PercentileRanges k) {
  std::int64_t* totals = cuda::shared_memory<std::int64_t>();
  double* values = reinterpret_cast<double*>(totals + kThreads);
  const std::int64_t c = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const ChannelHistograms& h = k.histograms;
  if (*k.steps == 1 || !(h.lo[c] <= h.hi[c])) {
    if (thread == 0) {
      k.lo[c] = *k.steps == 1 ? k.first_lo[c] : INFINITY;
      k.hi[c] = *k.steps == 1 ? k.first_hi[c] : -INFINITY;
    }
    return;
  }
  const OrderedBins ordered(h, c, k.symmetric);
  const std::int64_t per_thread = (ordered.bins() + kThreads - 1) / kThreads;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < per_thread; ++i) {
    const std::int64_t bin = thread * per_thread + i;
    if (bin < ordered.bins()) total += ordered.count(bin);
  }
  totals[thread] = total;
  __syncthreads();
  std::int64_t n = 0;
  if (thread < kPercentileRanks) {
    for (int t = 0; t < kThreads; ++t) n += totals[t];
    const std::int64_t needed = rank_needed(thread, k.percentile, n);
    std::int64_t j = needed;
    int owner = 0;
    for (; j >= totals[owner]; ++owner) j -= totals[owner];
    std::int64_t bin = owner * per_thread;
    for (; j >= ordered.count(bin); ++bin) j -= ordered.count(bin);
    values[thread] = ordered.value(needed, n, bin, j);
  }
  __syncthreads();
  if (thread != 0) return;
  const RangeEnds ends = percentile_range(values, k.percentile, n, k.symmetric, h.lo[c], h.hi[c]);
  k.lo[c] = ends.lo;
  k.hi[c] = ends.hi;
}

// One block: *due = 1 where this is the first step with finite values.
__global__ void __launch_bounds__(kThreads) count_step_kernel(PercentilesOfFirstStep k, int* due) {
  bool any = false;
  for (std::int64_t c = threadIdx.x; c < k.layout.channels; c += kThreads) {
    any = any || k.x_lo[c] <= k.x_hi[c];
  }
  any = __syncthreads_or(any ? 1 : 0) != 0;
  if (threadIdx.x == 0) *due = any && ++*k.steps == 1 ? 1 : 0;
}

// Unsigned integers in the order of finite floats, and back.
__device__ unsigned key_of(float value) {
  const unsigned bits = __float_as_uint(value + 0.0F);  // -0 + 0 = +0
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}
__device__ float value_of(unsigned key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7FFFFFFFU : ~key);
}

// Ranks that have found the same digits so far share the table of the first of them.
__device__ int table_of(const unsigned* prefix, int first_rank, int rank) {
  int table = first_rank;
  while (prefix[table] != prefix[rank]) ++table;
  return table;
}

// What a search has found so far.
struct Found {
  int* due;              // nothing is looked for where it is 0
  Count* tables;         // [channels, kTables], counts of the next digit
  unsigned* prefixes;    // [channels, kPercentileRanks], the digits of the ranks' keys
  std::int64_t* ranks;   // [channels, kPercentileRanks], among the keys that begin so
  std::int64_t* counts;  // [channels], of finite values
};

__global__ void begin_kernel(std::int64_t n, Found found) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  found.tables[i] = 0;
  if (i % kDigits == 0) found.prefixes[i / kDigits] = 0;
}

// Block b counts, in part b % parts of channel b / parts, the digits of those keys that begin as
// the ranks' values do.
__global__ void __launch_bounds__(kThreads)
    count_digits_kernel(PercentilesOfFirstStep k, std::int64_t parts, int shift, Found found) {
  if (*found.due == 0) return;
  unsigned* counts = cuda::shared_memory<unsigned>();
  for (int i = static_cast<int>(threadIdx.x); i < kTables; i += kThreads) counts[i] = 0;
  __syncthreads();
  const int first_rank = k.symmetric ? 2 : 0;
  const ChannelLayout& layout = k.layout;
  const std::int64_t c = cuda::divide(blockIdx.x, parts);
  const unsigned* prefix = found.prefixes + c * kPercentileRanks;
  std::uint64_t begins_with[kPercentileRanks];
#pragma unroll
  for (int rank = 0; rank < kPercentileRanks; ++rank) {
    const bool leads = rank >= first_rank && table_of(prefix, first_rank, rank) == rank;
    begins_with[rank] = leads ? prefix[rank] : ~std::uint64_t{0};  // no key begins so
  }
  const std::int64_t n = layout.outer * layout.inner;
  for (std::int64_t i = (blockIdx.x - c * parts) * kThreads + threadIdx.x; i < n;
       i += parts * kThreads) {
    const float value = k.x[layout.element(c, i)];
    if (!is_finite(value)) continue;
    const std::uint64_t key = key_of(k.symmetric && value < 0 ? -value : value);
    const auto digit = static_cast<int>((key >> shift) % kDigits);
#pragma unroll
    for (int rank = 0; rank < kPercentileRanks; ++rank) {
      if (key >> (shift + kDigitBits) == begins_with[rank]) {
        atomicAdd(counts + rank * kDigits + digit, 1U);
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTables; i += kThreads) {
    if (counts[i] != 0) atomicAdd(found.tables + c * kTables + i, static_cast<Count>(counts[i]));
  }
}

// One block, one channel: a digit more of every rank's value. The tables are left empty.
__global__ void __launch_bounds__(kThreads)
    find_digit_kernel(PercentilesOfFirstStep k, bool first_digit, Found found) {
  if (*found.due == 0 || !(k.x_lo[blockIdx.x] <= k.x_hi[blockIdx.x])) return;
  Count* counts = cuda::shared_memory<Count>();
  const std::int64_t c = blockIdx.x;
  for (int i = static_cast<int>(threadIdx.x); i < kTables; i += kThreads) {
    counts[i] = found.tables[c * kTables + i];
    found.tables[c * kTables + i] = 0;
  }
  const int first_rank = k.symmetric ? 2 : 0;
  const int rank = static_cast<int>(threadIdx.x);
  const bool finds = rank >= first_rank && rank < kPercentileRanks;
  unsigned* prefix = found.prefixes + c * kPercentileRanks;
  const int table = finds ? table_of(prefix, first_rank, rank) : 0;
  __syncthreads();
  if (!finds) return;
  const Count* mine = counts + table * kDigits;
  std::int64_t& left = found.ranks[c * kPercentileRanks + rank];
  if (first_digit) {
    Count n = 0;
    for (int digit = 0; digit < kDigits; ++digit) n += mine[digit];
    left = rank_needed(rank, k.percentile, static_cast<std::int64_t>(n));
    if (rank == kPercentileRanks - 1) found.counts[c] = static_cast<std::int64_t>(n);
  }
  int digit = 0;
  for (; left >= static_cast<std::int64_t>(mine[digit]); ++digit) {
    left -= static_cast<std::int64_t>(mine[digit]);
  }
  prefix[rank] = (prefix[rank] << kDigitBits) + static_cast<unsigned>(digit);
}

__global__ void range_of_values_kernel(std::int64_t channels, PercentilesOfFirstStep k,
                                       Found found) {
  const std::int64_t c = element_index();
  if (c >= channels || *found.due == 0) return;
  RangeEnds ends{INFINITY, -INFINITY};
  if (k.x_lo[c] <= k.x_hi[c]) {
    double values[kPercentileRanks];
    for (int i = 0; i < kPercentileRanks; ++i) {
      values[i] = value_of(found.prefixes[c * kPercentileRanks + i]);
    }
    ends =
        percentile_range(values, k.percentile, found.counts[c], k.symmetric, k.x_lo[c], k.x_hi[c]);
  }
  k.lo[c] = ends.lo;
  k.hi[c] = ends.hi;
}

}  // namespace

static void compute(const CudaQueue& queue, const PercentileRanges& k) {
  constexpr std::size_t kShared =
      kThreads * sizeof(std::int64_t) + kPercentileRanks * sizeof(double);
  cuda::launch(range_of_bins_kernel, {k.histograms.channels, kThreads, kShared},
               cuda::stream_of(queue), k);
}

static void compute(const CudaQueue& queue, const PercentilesOfFirstStep& k) {
  const std::int64_t channels = k.layout.channels;
  const std::int64_t n = k.layout.outer * k.layout.inner;
  if (channels == 0 || n == 0) return;
  const cudaStream_t stream = cuda::stream_of(queue);
  const cuda::Scratch<int> due(queue, 1);
  const cuda::Scratch<Count> tables(queue, channels * kTables);
  const cuda::Scratch<unsigned> prefixes(queue, channels * kPercentileRanks);
  const cuda::Scratch<std::int64_t> ranks(queue, channels * kPercentileRanks);
  const cuda::Scratch<std::int64_t> counts(queue, channels);
  const Found found{due.data(), tables.data(), prefixes.data(), ranks.data(), counts.data()};
  cuda::launch(count_step_kernel, {1, kThreads}, stream, k, due.data());
  cuda::launch_elements(queue, begin_kernel, channels * kTables, found);
  const std::int64_t per_block = kThreads * kPerThread;
  const std::int64_t most = std::max<std::int64_t>(1, kMostBlocks / channels);
  const std::int64_t parts = std::min(most, (n + per_block - 1) / per_block);
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    cuda::launch(count_digits_kernel, {channels * parts, kThreads, kTables * sizeof(unsigned)},
                 stream, k, parts, shift, found);
    cuda::launch(find_digit_kernel, {channels, kThreads, kTables * sizeof(Count)}, stream, k,
                 shift == 32 - kDigitBits, found);
  }
  cuda::launch_elements(queue, range_of_values_kernel, channels, k, found);
}

template struct CudaKernels<PercentileKernels>;

}  // namespace steelyard::kernels
