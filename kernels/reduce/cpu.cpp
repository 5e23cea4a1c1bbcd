#include "steelyard/kernels/reduce/reduce.h"

#include <mutex>

#include "steelyard/kernels/cpu/range_slots.h"
#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

template <typename T>
void compute(const MinMax<T>& k) {
  constexpr std::int64_t kGrain = 16384;
  const RunPlan plan(make_set_map(k.layout));
  Extremes<T> total(k.layout.channels);
  std::mutex mutex;
  parallel_for(k.layout.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    RangeSlots<T> part(plan);
    part.add(begin, end - begin, k.x + begin);
    const std::lock_guard<std::mutex> lock(mutex);
    part.fold_into(total);
  });
  for (std::int64_t c = 0; c < k.layout.channels; ++c) {
    k.lo[c] = total.lo[c] + T(0);  // -0 + 0 = +0: which zero came first must not show
    k.hi[c] = total.hi[c] + T(0);
    if (k.non_finite != nullptr) k.non_finite[c] = total.skipped[c];
  }
}

template struct CpuKernels<ReduceKernels>;

}  // namespace steelyard::kernels
