#include "steelyard/kernels/shrunken_range/shrunken_range.h"

#include <algorithm>
#include <vector>

#include "steelyard/kernels/cpu/chunk_sums.h"
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/quant_plan/range_choice.h"
#include "steelyard/kernels/shrunken_range/formulas.h"

namespace steelyard::kernels {
namespace {

double chunk_error(const float* x, std::int64_t n, CodeRange range, const QParams<float>& qparams) {
  float quantized[kSumChunk];
  double squares[kSumChunk];
  const CodeGrid<float> grid = make_code_grid(range, qparams.scale, qparams.zero_point);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) quantized[i] = fake_quantize_value(x[i], grid);
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < n; ++i) squares[i] = squared_difference(quantized[i], x[i]);
  return sum_chunk(n, squares);
}

// The number of candidates whose errors are computed while a chunk is in the cache.
constexpr int kTogether = 25;

// One channel's values, gathered, and their errors under some candidates.
class Channel {
 public:
  Channel(const ChannelLayout& layout, const float* x, std::int64_t channel)
      : size_(layout.outer * layout.inner),
        chunks_((size_ + kSumChunk - 1) / kSumChunk),
        values_(static_cast<std::size_t>(size_)),
        sums_(static_cast<std::size_t>(chunks_ * kTogether)) {
    for (std::int64_t o = 0; o < layout.outer; ++o) {
      const float* run = x + (o * layout.channels + channel) * layout.inner;
      std::transform(run, run + layout.inner, values_.data() + o * layout.inner, summed_value);
    }
  }

  // errors[i] is that of the i-th of at most kTogether grids.
  void errors(CodeRange range, const std::vector<QParams<float>>& grids, double* errors) {
    constexpr std::int64_t kChunksPerThread = 32;
    parallel_for(chunks_, kChunksPerThread, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t first = c * kSumChunk;
        double* sum = sums_.data() + c;
        for (const auto& grid : grids) {
          *sum =
              chunk_error(values_.data() + first, std::min(kSumChunk, size_ - first), range, grid);
          sum += chunks_;
        }
      }
    });
    for (std::size_t i = 0; i < grids.size(); ++i) {
      errors[i] = sum_of_chunks(sums_.data() + static_cast<std::int64_t>(i) * chunks_, chunks_);
    }
  }

 private:
  std::int64_t size_;
  std::int64_t chunks_;
  std::vector<float> values_;
  std::vector<double> sums_;  // [kTogether, chunks]
};

// First the widest range alone. If it represents all values exactly, no other is tried.
int best_candidate(Channel& channel, float lo, float hi, CodeRange range, bool symmetric) {
  Least best;
  for (int first = 0; first < kShrinkFactors && best.value > 0;) {
    const int end = first == 0 ? 1 : std::min(kShrinkFactors, first + kTogether);
    std::vector<QParams<float>> grids;
    for (int k = first; k < end && is_candidate(lo, hi, k); ++k) {
      grids.push_back(qparams_of_candidate(lo, hi, k, range, symmetric));
    }
    double errors[kTogether];
    channel.errors(range, grids, errors);
    for (std::size_t i = 0; i < grids.size(); ++i) {
      best.meet(errors[i], first + static_cast<int>(i));
    }
    first = end;
  }
  return best.index;
}

}  // namespace

static void compute(const LeastErrorShrinkings& k) {
  parallel_for(k.layout.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      k.best_lo[c] = k.lo[c];
      k.best_hi[c] = k.hi[c];
      if (!is_candidate(k.lo[c], k.hi[c], 0)) continue;
      Channel channel(k.layout, k.x, c);
      const int best = best_candidate(channel, k.lo[c], k.hi[c], k.range, k.symmetric);
      k.best_lo[c] = shrunken_end(k.lo[c], best);
      k.best_hi[c] = shrunken_end(k.hi[c], best);
    }
  });
}

template struct CpuKernels<ShrunkenRangeKernels>;

}  // namespace steelyard::kernels
