#include "kernels/reduce.h"

#include <mutex>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/range_slots.h"

namespace steelyard::kernels {

template <typename T>
void min_max(const ChannelLayout& layout, const T* x, T* lo, T* hi, std::int64_t* non_finite) {
  constexpr std::int64_t kGrain = 16384;
  const RunPlan plan(make_set_map(layout));
  Extremes<T> total(layout.channels);
  std::mutex mutex;
  parallel_for(layout.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    RangeSlots<T> part(plan);
    part.add(begin, end - begin, x + begin);
    const std::lock_guard<std::mutex> lock(mutex);
    part.fold_into(total);
  });
  for (std::int64_t c = 0; c < layout.channels; ++c) {
    lo[c] = total.lo[c] + T(0);  // -0 + 0 = +0: which zero came first must not show
    hi[c] = total.hi[c] + T(0);
    if (non_finite != nullptr) non_finite[c] = total.skipped[c];
  }
}

template void min_max(const ChannelLayout&, const float*, float*, float*, std::int64_t*);
template void min_max(const ChannelLayout&, const double*, double*, double*, std::int64_t*);

}  // namespace steelyard::kernels
