// Extremes of the finite values of each parameter set, gathered range by range.
#pragma once

#include <algorithm>
#include <limits>

#include "steelyard/kernels/cpu/line_buffer.h"
#include "steelyard/kernels/cpu/run_extremes.h"
#include "steelyard/kernels/cpu/set_runs.h"
#include "steelyard/kernels/cpu/set_walker.h"
#include "steelyard/kernels/cpu/short_runs.h"

namespace steelyard::kernels {

// Extremes and skipped elements of `size` independent slots.
template <typename T>
struct Extremes {
  explicit Extremes(std::int64_t size) { reset(size); }

  void reset(std::int64_t size) {
    const auto slots = static_cast<std::size_t>(size);
    lo.assign(slots, std::numeric_limits<T>::infinity());
    hi.assign(slots, -std::numeric_limits<T>::infinity());
    skipped.assign(slots, 0);
  }

  void fold(std::int64_t slot, const RunExtremes<T>& run) {
    lo[slot] = run.lo < lo[slot] ? run.lo : lo[slot];
    hi[slot] = run.hi > hi[slot] ? run.hi : hi[slot];
    skipped[slot] += run.skipped;
  }

  KeptVector<T> lo;
  KeptVector<T> hi;
  KeptVector<std::int64_t> skipped;
};

// One thread's extremes: add() parts of the tensor, then fold_into() the total.
template <typename T>
class RangeSlots {
 public:
  explicit RangeSlots(const RunPlan& plan)
      : RangeSlots(plan, has_tiles(plan) ? plan.tile() : plan.map().sets) {}
  RangeSlots(const RunPlan& plan, std::int64_t slots)
      : plan_(&plan), tiled_(has_tiles(plan)), slots_(slots) {}

  // x[i] is the value of logical index begin + i.
  void add(std::int64_t begin, std::int64_t count, const T* x) {
    if (tiled_) {
      add_tiles(begin, count, x);
    } else if (plan_->has_long_runs()) {
      add_runs(begin, count, [&](std::int64_t first, std::int64_t length, std::int64_t) {
        return extremes_of_run(length, x + (first - begin));
      });
    } else {
      add_short_runs(begin, count, x);
    }
  }

  // Adds measure(first, length, set), a RunExtremes, of every run. Not for tiles.
  template <typename Measure>
  void add_runs(std::int64_t begin, std::int64_t count, Measure&& measure) {
    plan_->for_each(begin, begin + count,
                    [&](std::int64_t first, std::int64_t length, std::int64_t set) {
                      slots_.fold(set - first_set_, measure(first, length, set));
                    });
  }

  // Forgets everything; the sets that follow are [first, first + sets). Not for tiles.
  void begin_sets(std::int64_t first, std::int64_t sets) {
    first_set_ = first;
    slots_.reset(sets);
  }
  // What was seen of each of them.
  const Extremes<T>& of_sets() const { return slots_; }

  void fold_into(Extremes<T>& total) const {
    const auto slots = static_cast<std::int64_t>(slots_.lo.size());
    const std::int64_t of_set = tiled_ ? plan_->period() / plan_->map().sets : 1;
    for (std::int64_t slot = 0, set = 0; slot < slots; slot += of_set, ++set) {
      if (set == plan_->map().sets) set = 0;  // the next period of a tile
      for (std::int64_t i = slot; i < slot + of_set; ++i) {
        total.fold(set, {slots_.lo[i], slots_.hi[i], slots_.skipped[i]});
      }
    }
  }

 private:
  // Runs of a vector or more are measured faster one by one than element by element of a tile.
  static bool has_tiles(const RunPlan& plan) {
    return plan.tiled() && plan.period() / plan.map().sets < kVectorRun;
  }

  // Whole tiles are rows of a block, several together.
  void add_tiles(std::int64_t begin, std::int64_t count, const T* x) {
    const std::int64_t tile = plan_->tile();
    for (std::int64_t slot = begin % tile; count > 0; slot = 0) {
      const std::int64_t width = std::min(count, tile - slot);
      const std::int64_t rows = width == tile ? count / tile : 1;
      take_rows(rows, width, x, slots_.lo.data() + slot, slots_.hi.data() + slot,
                slots_.skipped.data() + slot);
      x += rows * width;
      count -= rows * width;
    }
  }

  void add_short_runs(std::int64_t begin, std::int64_t count, const T* x) {
    SetWalker walker(plan_->map(), begin);
    while (count > 0) {
      const std::int64_t slot = walker.set() - first_set_;
      const std::int64_t runs = walker.whole_runs(count);
      std::int64_t done = std::min(count, walker.length());
      if (runs > 1) {
        fold_runs(runs, done, x, slots_.lo.data() + slot, slots_.hi.data() + slot,
                  slots_.skipped.data() + slot);
        walker.advance_runs(runs);
        done *= runs;
      } else {
        slots_.fold(slot, extremes_of_run(done, x));
        walker.advance(done);
      }
      x += done;
      count -= done;
    }
  }

  const RunPlan* plan_;
  bool tiled_;
  std::int64_t first_set_ = 0;
  Extremes<T> slots_;
};

}  // namespace steelyard::kernels
