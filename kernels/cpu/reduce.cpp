#include "kernels/reduce.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <type_traits>
#include <vector>

#include "kernels/cpu/channel_runs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vectorize.h"

namespace steelyard::kernels {
namespace {

constexpr std::int64_t kGrain = 16384;
constexpr std::int64_t kLanes = 64;

// Extremes and skipped elements of `size` independent slots.
template <typename T>
struct Extremes {
  explicit Extremes(std::int64_t size)
      : lo(static_cast<std::size_t>(size), std::numeric_limits<T>::infinity()),
        hi(static_cast<std::size_t>(size), -std::numeric_limits<T>::infinity()),
        skipped(static_cast<std::size_t>(size), 0) {}

  void fold(std::int64_t slot, T other_lo, T other_hi, std::int64_t other_skipped) {
    lo[slot] = other_lo < lo[slot] ? other_lo : lo[slot];
    hi[slot] = other_hi > hi[slot] ? other_hi : hi[slot];
    skipped[slot] += other_skipped;
  }

  std::vector<T> lo;
  std::vector<T> hi;
  std::vector<std::int64_t> skipped;
};

// Takes count values (count <= the arrays' length), value i into slot i. The comparisons write
// min and max; a non-finite value leaves both.
template <typename T, typename Count>
void accumulate(std::int64_t count, const T* x, T* lo, T* hi, Count* skipped) {
  constexpr T kMax = std::numeric_limits<T>::max();
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = x[i];
    const bool finite = (value <= kMax) & (value >= -kMax);
    const T below = finite ? value : std::numeric_limits<T>::infinity();
    const T above = finite ? value : -std::numeric_limits<T>::infinity();
    lo[i] = below < lo[i] ? below : lo[i];
    hi[i] = above > hi[i] ? above : hi[i];
    skipped[i] += finite ? 0 : 1;
  }
}

// One channel's run, reduced in kLanes parallel slots (counters as wide as T vectorise best).
template <typename T>
void reduce_run(std::int64_t count, const T* x, std::int64_t channel, Extremes<T>& out) {
  using Narrow = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  std::array<T, kLanes> lo;
  std::array<T, kLanes> hi;
  std::array<Narrow, kLanes> skipped{};
  lo.fill(std::numeric_limits<T>::infinity());
  hi.fill(-std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    accumulate(kLanes, x + i, lo.data(), hi.data(), skipped.data());
  }
  accumulate(count - i, x + i, lo.data(), hi.data(), skipped.data());
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    out.fold(channel, lo[lane], hi[lane], skipped[lane]);
  }
}

// The extremes of [begin, end), per channel.
template <typename T>
Extremes<T> reduce_range(const ChannelLayout& layout, const RunPlan& plan, const T* x,
                         std::int64_t begin, std::int64_t end) {
  Extremes<T> channels(layout.channels);
  if (!plan.tiled()) {
    plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
      constexpr std::int64_t kMost = std::int64_t{1} << 30;  // what a lane's counter can hold
      for (std::int64_t i = 0; i < count; i += kMost) {
        reduce_run(std::min(kMost, count - i), x + first + i, plan.channel(first), channels);
      }
    });
    return channels;
  }
  Extremes<T> slots(plan.tile());
  plan.for_each(begin, end, [&](std::int64_t first, std::int64_t count) {
    const std::int64_t offset = first % plan.tile();
    accumulate(count, x + first, slots.lo.data() + offset, slots.hi.data() + offset,
               slots.skipped.data() + offset);
  });
  for (std::int64_t slot = 0; slot < plan.tile(); ++slot) {
    channels.fold(plan.channel(slot), slots.lo[slot], slots.hi[slot], slots.skipped[slot]);
  }
  return channels;
}

}  // namespace

template <typename T>
void min_max(const ChannelLayout& layout, const T* x, T* lo, T* hi, std::int64_t* non_finite) {
  const RunPlan plan(layout);
  Extremes<T> total(layout.channels);
  std::mutex mutex;
  parallel_for(layout.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const Extremes<T> part = reduce_range(layout, plan, x, begin, end);
    const std::lock_guard<std::mutex> lock(mutex);
    for (std::int64_t c = 0; c < layout.channels; ++c) {
      total.fold(c, part.lo[c], part.hi[c], part.skipped[c]);
    }
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
