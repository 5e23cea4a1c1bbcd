// Extremes of many runs that follow each other and are of one length, a few vectors each: vectors
// are reduced lane by lane, then the lanes of many runs by halves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "steelyard/kernels/cpu/blocks.h"
#include "steelyard/kernels/cpu/run_extremes.h"
#include "steelyard/kernels/cpu/vectorize.h"

namespace steelyard::kernels {

inline constexpr std::int64_t kVectorRun = 16;

// kLanes patterns of each of several runs, run after run (BitExtremes).
template <typename T, int kLanes>
struct RunLanes {
  static constexpr std::int64_t kRuns = 512 / kLanes;
  using Signed = typename BitExtremes<T>::Signed;
  using Unsigned = typename BitExtremes<T>::Unsigned;

  alignas(kCacheLine) Signed largest[kRuns * kLanes];
  alignas(kCacheLine) Unsigned largest_unsigned[kRuns * kLanes];
  alignas(kCacheLine) Unsigned smallest_unsigned[kRuns * kLanes];

  // The lanes of run r, of length >= kLanes. The last vector may have values of the one before it.
  void measure(std::int64_t r, std::int64_t length, const T* x) {
    Signed* a = largest + r * kLanes;
    Unsigned* b = largest_unsigned + r * kLanes;
    Unsigned* c = smallest_unsigned + r * kLanes;
    std::memcpy(a, x, kLanes * sizeof(T));
    std::memcpy(b, x, kLanes * sizeof(T));
    std::memcpy(c, x, kLanes * sizeof(T));
    for (std::int64_t done = kLanes; done < length; done += kLanes) {
      const T* from = x + std::min(done, length - kLanes);
      for (int i = 0; i < kLanes; ++i) {
        a[i] = std::max(a[i], bits_as<Signed>(from[i]));
        b[i] = std::max(b[i], bits_as<Unsigned>(from[i]));
        c[i] = std::min(c[i], bits_as<Unsigned>(from[i]));
      }
    }
  }

  // Leaves one pattern for each of the runs.
  void reduce(std::int64_t runs) {
    for (std::int64_t n = runs * kLanes / 2; n >= runs; n /= 2) {
      STEELYARD_VECTORIZE
      for (std::int64_t i = 0; i < n; ++i) {
        largest[i] = std::max(largest[2 * i], largest[2 * i + 1]);
        largest_unsigned[i] = std::max(largest_unsigned[2 * i], largest_unsigned[2 * i + 1]);
        smallest_unsigned[i] = std::min(smallest_unsigned[2 * i], smallest_unsigned[2 * i + 1]);
      }
    }
  }

  BitExtremes<T> of(std::int64_t r) const {
    return {largest[r], largest_unsigned[r], smallest_unsigned[r]};
  }
};

// The extremes of `runs` runs enter lo and hi, values that are not finite are counted: a slot for
// each run.
template <int kLanes, typename T>
void fold_runs_by_lanes(std::int64_t runs, std::int64_t length, const T* x, T* lo, T* hi,
                        std::int64_t* skipped) {
  RunLanes<T, kLanes> lanes;
  for (std::int64_t first = 0; first < runs; first += lanes.kRuns) {
    const std::int64_t n = std::min(runs - first, lanes.kRuns);
    for (std::int64_t r = 0; r < n; ++r) lanes.measure(r, length, x + (first + r) * length);
    lanes.reduce(n);
    std::int32_t others = 0;
    STEELYARD_VECTORIZE
    for (std::int64_t r = 0; r < n; ++r) {
      const BitExtremes<T> seen = lanes.of(r);
      const bool finite = seen.all_finite();
      const RunExtremes<T> run = seen.values();
      const bool lower = finite & (run.lo < lo[first + r]);
      const bool higher = finite & (run.hi > hi[first + r]);
      lo[first + r] = lower ? run.lo : lo[first + r];
      hi[first + r] = higher ? run.hi : hi[first + r];
      others |= finite ? 0 : 1;
    }
    for (std::int64_t r = first; others != 0 && r < first + n; ++r) {
      if (lanes.of(r - first).all_finite()) continue;
      for (std::int64_t i = r * length; i < (r + 1) * length; ++i) {
        take_values(1, x + i, lo + r, hi + r, skipped + r);
      }
    }
  }
}

template <typename T>
void fold_runs(std::int64_t runs, std::int64_t length, const T* x, T* lo, T* hi,
               std::int64_t* skipped) {
  if (length >= kVectorRun) return fold_runs_by_lanes<kVectorRun>(runs, length, x, lo, hi, skipped);
  if (length >= 4) return fold_runs_by_lanes<4>(runs, length, x, lo, hi, skipped);
  fold_runs_by_lanes<1>(runs, length, x, lo, hi, skipped);
}

}  // namespace steelyard::kernels
