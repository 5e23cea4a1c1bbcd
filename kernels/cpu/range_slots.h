// Extremes of the finite values of each parameter set, gathered range by range.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/set_runs.h"
#include "kernels/cpu/vectorize.h"

namespace steelyard::kernels {

// lo = +inf, hi = -inf where there is no finite value.
template <typename T>
struct RunExtremes {
  T lo = std::numeric_limits<T>::infinity();
  T hi = -std::numeric_limits<T>::infinity();
  std::int64_t skipped = 0;  // non-finite values
};

// Takes count values (count <= the arrays' length), value i into slot i. The comparisons write
// min and max; a non-finite value leaves both.
template <typename T, typename Count>
void take_values(std::int64_t count, const T* x, T* lo, T* hi, Count* skipped) {
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

// The extremes of `count` values, gathered in parallel slots (counters as wide as T vectorise best,
// and are emptied before they can overflow).
template <typename T>
RunExtremes<T> extremes_of_run(std::int64_t count, const T* x) {
  constexpr std::int64_t kLanes = 64;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  using Narrow = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  RunExtremes<T> run;
  while (count > 0) {
    const std::int64_t part = std::min(kMost, count);
    std::array<T, kLanes> lo;
    std::array<T, kLanes> hi;
    std::array<Narrow, kLanes> skipped{};
    lo.fill(std::numeric_limits<T>::infinity());
    hi.fill(-std::numeric_limits<T>::infinity());
    std::int64_t i = 0;
    for (; i + kLanes <= part; i += kLanes) {
      take_values(kLanes, x + i, lo.data(), hi.data(), skipped.data());
    }
    take_values(part - i, x + i, lo.data(), hi.data(), skipped.data());
    for (std::int64_t lane = 0; lane < std::min(kLanes, part); ++lane) {
      run.lo = lo[lane] < run.lo ? lo[lane] : run.lo;
      run.hi = hi[lane] > run.hi ? hi[lane] : run.hi;
      run.skipped += skipped[lane];
    }
    x += part;
    count -= part;
  }
  return run;
}

// Extremes and skipped elements of `size` independent slots.
template <typename T>
struct Extremes {
  explicit Extremes(std::int64_t size)
      : lo(static_cast<std::size_t>(size), std::numeric_limits<T>::infinity()),
        hi(static_cast<std::size_t>(size), -std::numeric_limits<T>::infinity()),
        skipped(static_cast<std::size_t>(size), 0) {}

  void fold(std::int64_t slot, const RunExtremes<T>& run) {
    lo[slot] = run.lo < lo[slot] ? run.lo : lo[slot];
    hi[slot] = run.hi > hi[slot] ? run.hi : hi[slot];
    skipped[slot] += run.skipped;
  }

  std::vector<T> lo;
  std::vector<T> hi;
  std::vector<std::int64_t> skipped;
};

// One thread's extremes: add() parts of the tensor, then fold_into() the total.
template <typename T>
class RangeSlots {
 public:
  explicit RangeSlots(const RunPlan& plan)
      : plan_(&plan), slots_(plan.tiled() ? plan.tile() : plan.map().sets) {}

  // x[i] is the value of logical index begin + i.
  void add(std::int64_t begin, std::int64_t count, const T* x) {
    plan_->for_each(begin, begin + count, [&](std::int64_t first, std::int64_t length) {
      if (plan_->tiled()) {
        const std::int64_t offset = first % plan_->tile();
        take_values(length, x + (first - begin), slots_.lo.data() + offset,
                    slots_.hi.data() + offset, slots_.skipped.data() + offset);
      } else {
        slots_.fold(plan_->set(first), extremes_of_run(length, x + (first - begin)));
      }
    });
  }

  void fold_into(Extremes<T>& total) const {
    for (std::int64_t slot = 0; slot < static_cast<std::int64_t>(slots_.lo.size()); ++slot) {
      const std::int64_t set = plan_->tiled() ? plan_->set(slot) : slot;
      total.fold(set, {slots_.lo[slot], slots_.hi[slot], slots_.skipped[slot]});
    }
  }

 private:
  const RunPlan* plan_;
  Extremes<T> slots_;
};

}  // namespace steelyard::kernels
