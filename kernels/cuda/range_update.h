// Observing in one launch: blocks find extremes, the last of them updates the quantizer.
#pragma once

#include <algorithm>

#include "steelyard/kernels/cuda/block_sum.h"
#include "steelyard/kernels/cuda/last_block.h"
#include "steelyard/kernels/quantizer_state/formulas.h"

namespace steelyard::kernels::cuda {

// Joins extremes of either kind.
struct JoinExtremes {
  template <typename Extremes>
  __device__ Extremes operator()(Extremes a, const Extremes& b) const {
    a.join(b);
    return a;
  }
};

// The values are term(i).
template <typename Extremes, typename Term>
__global__ void __launch_bounds__(kThreads)
    observe_range_kernel(std::int64_t n, Term term, RangeRule rule, RangeQuantizer to,
                         Extremes* partial, std::uint32_t* arrivals) {
  Extremes* shared = shared_memory<Extremes>();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  Extremes mine;
  read_ahead<4>(element_index(), n, step, term,
                [&](std::int64_t, float value) { mine.take(value); });
  mine = join_lanes(kThreads, mine, shared, JoinExtremes());
  if (threadIdx.x == 0) partial[blockIdx.x] = mine;
  if (!is_last_block(gridDim.x, arrivals)) return;
  mine = Extremes();
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) mine.join(partial[i]);
  mine = join_lanes(kThreads, mine, shared, JoinExtremes());
  if (threadIdx.x != 0) return;
  const Extremes observed = mine.observed(n);
  *to.non_finite += observed.skipped;
  follow_extremes(rule, to, observed.lo, observed.hi);
}

template <typename Extremes, typename Term>
void observe_range(const CudaQueue& queue, const RangeRule& rule, const RangeQuantizer& to,
                   std::int64_t n, const Term& term) {
  constexpr std::int64_t kMostBlocks = 1024;
  constexpr std::int64_t kPerBlock = std::int64_t{kThreads} * 8;
  const std::int64_t blocks =
      std::clamp<std::int64_t>((n + kPerBlock - 1) / kPerBlock, 1, kMostBlocks);
  const Scratch<Extremes> partial(queue, blocks);
  launch(observe_range_kernel<Extremes, Term>, {blocks, kThreads, kThreads * sizeof(Extremes)},
         stream_of(queue), n, term, rule, to, partial.data(), queue.arrivals);
}

}  // namespace steelyard::kernels::cuda
