// The extremes of each parameter set, gathered by atomic minima and maxima of integers that order
// like the floats, so the order in which blocks arrive does not show.
#pragma once

#include <cmath>

#include "steelyard/kernels/cuda/eight.h"
#include "steelyard/kernels/quant_plan/quant_problem.h"

namespace steelyard::kernels::cuda {

// Signed integers in the order of the finite floats and infinities; -0 comes before +0.
template <typename T>
struct Ordered;
template <>
struct Ordered<float> {
  using Key = int;
  static constexpr Key kSignless = 0x7FFFFFFF;
};
template <>
struct Ordered<double> {
  using Key = long long;
  static constexpr Key kSignless = 0x7FFFFFFFFFFFFFFFLL;
};
template <typename T>
using Key = typename Ordered<T>::Key;

template <typename T>
__device__ Key<T> to_key(T value) {
  const Key<T> bits = bits_as<Key<T>>(value);
  return bits >= 0 ? bits : bits ^ Ordered<T>::kSignless;
}

template <typename T>
__device__ T from_key(Key<T> key) {
  return bits_as<T>(key >= 0 ? key : key ^ Ordered<T>::kSignless);
}

template <typename T>
__device__ constexpr T infinity() {
  return static_cast<T>(INFINITY);
}

// One call's extremes, a slot per set.
template <typename T>
struct Seen {
  Key<T>* lo;
  Key<T>* hi;
  unsigned long long* skipped;
};

template <typename T>
Seen<T> seen_in(void* workspace, std::int64_t sets) {
  auto* skipped = static_cast<unsigned long long*>(workspace);
  auto* lo = reinterpret_cast<Key<T>*>(skipped + sets);
  return {lo, lo + sets, skipped};
}

template <typename T>
struct Extremes {
  T lo = infinity<T>();
  T hi = -infinity<T>();
  unsigned skipped = 0;

  __device__ void take(T value) {
    const bool finite = value - value == T(0);
    lo = finite && value < lo ? value : lo;
    hi = finite && value > hi ? value : hi;
    skipped += finite ? 0U : 1U;
  }
  // Asks only once whether all are finite: products with 0 are 0 then, and so is their sum.
  __device__ void take_eight(const T (&values)[kEight]) {
    T zero = 0, least = values[0], most = values[0];
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      zero = std::fma(values[i], T(0), zero);
      least = std::fmin(least, values[i]);
      most = std::fmax(most, values[i]);
    }
    if (zero == T(0)) {
      lo = std::fmin(lo, least);
      hi = std::fmax(hi, most);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEight; ++i) take(values[i]);
  }
};

// Memory is touched only where it would change.
template <typename T>
__device__ void fold(const Extremes<T>& part, std::int64_t set, const Seen<T>& seen) {
  const Key<T> lo = to_key(part.lo);
  const Key<T> hi = to_key(part.hi);
  if (lo < seen.lo[set]) atomicMin(seen.lo + set, lo);
  if (hi > seen.hi[set]) atomicMax(seen.hi + set, hi);
  if (part.skipped != 0) atomicAdd(seen.skipped + set, part.skipped);
}

// Every thread of the warp calls it with the extremes of elements of one set, or with none and set
// -1: lanes that agree on the set meet first.
template <typename T>
__device__ void fold_by_warp(std::int64_t set, Extremes<T> part, const Seen<T>& seen) {
  constexpr unsigned kAll = 0xFFFFFFFFU;
  const std::int64_t first = __shfl_sync(kAll, set, 0);
  if (__all_sync(kAll, set == first || set < 0) == 0) {
    if (set >= 0) fold(part, set, seen);
    return;
  }
#pragma unroll 1
  for (int half = 16; half > 0; half /= 2) {
    const T lo = __shfl_down_sync(kAll, part.lo, half);
    const T hi = __shfl_down_sync(kAll, part.hi, half);
    part.lo = lo < part.lo ? lo : part.lo;
    part.hi = hi > part.hi ? hi : part.hi;
    part.skipped += __shfl_down_sync(kAll, part.skipped, half);
  }
  if (threadIdx.x % 32 == 0 && set >= 0) fold(part, set, seen);
}

// Takes a span of which all elements lie in one set, those that are `loaded` from `eight`.
template <typename V, typename T>
__device__ void take_span(const ValueArray<V>& x, const Span& span, bool loaded,
                          const T (&eight)[kEight], Extremes<T>& part) {
  if (loaded) {
    part.take_eight(eight);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) part.take(x.get(span.first + i));
}

// take_span() for a span whose elements may lie in several sets.
template <typename V, typename T>
__device__ void fold_span(const ValueArray<V>& x, const Sets& sets, const Span& span, bool loaded,
                          const T (&eight)[kEight], const Seen<T>& seen) {
  Extremes<T> part;
  if (loaded) {
    std::int64_t set = 0;
    sets.for_eight(span.first, [&](int i, std::int64_t next) {
      if (i > 0 && next != set) {
        fold(part, set, seen);
        part = Extremes<T>();
      }
      part.take(eight[i]);
      set = next;
    });
    fold(part, set, seen);
    return;
  }
#pragma unroll 1
  for (int i = 0; i < span.count; ++i) {
    part = Extremes<T>();
    part.take(x.get(span.first + i));
    fold(part, sets.of(span.first + i), seen);
  }
}

template <typename T>
__global__ void clear_kernel(Seen<T> seen, std::int64_t sets) {
  const std::int64_t set = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (set >= sets) return;
  seen.lo[set] = to_key(infinity<T>());
  seen.hi[set] = to_key(-infinity<T>());
  seen.skipped[set] = 0;
}

template <typename V>
__global__ void __launch_bounds__(kThreads)
    observe_kernel(ValueArray<V> x, std::int64_t elements, Sets sets, const std::uint8_t* observing,
                   Seen<ComputeType<V>> seen) {
  if (!is_on(observing)) return;
  using T = ComputeType<V>;
  Extremes<T> all;  // where there is one set
  for_each_span(elements, [&](const Span& span) {
    T eight[kEight] = {};
    const bool plain = x.wide && sets.eight_known() && span.count == kEight;
    if (plain) x.load_eight(span.first, eight);
    if (sets.sets == 1) {
      take_span(x, span, plain, eight, all);
    } else if (sets.eight_share) {
      Extremes<T> part;
      take_span(x, span, plain, eight, part);
      fold_by_warp(span.count > 0 ? sets.of(span.first) : -1, part, seen);
    } else {
      fold_span(x, sets, span, plain, eight, seen);
    }
  });
  if (sets.sets == 1) fold_by_warp(0, all, seen);
}

}  // namespace steelyard::kernels::cuda
