// Extremes of the finite values of a run.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "steelyard/kernels/bits.h"
#include "steelyard/kernels/cpu/vectorize.h"
#include "steelyard/kernels/value_type.h"

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

// take_values() of kRows rows of finite values, one after the other: row by row, value i of each
// into slot i.
template <int kRows, typename T>
void take_finite_rows(std::int64_t count, const T* x, T* lo, T* hi) {
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < count; ++i) {
    T below = lo[i];
    T above = hi[i];
    for (int row = 0; row < kRows; ++row) {
      const T value = x[row * count + i];
      below = value < below ? value : below;
      above = value > above ? value : above;
    }
    lo[i] = below;
    hi[i] = above;
  }
}

// The extremes of finite values from three reductions of their bits: integers' minima and maxima
// vectorize, those of floats do not while NaN and signed zeros count. The largest signed pattern is
// the largest value unless all are negative, the largest unsigned one is the smallest value unless
// none is; the smallest unsigned pattern serves where either fails.
template <typename T>
struct BitExtremes {
  using Signed = std::make_signed_t<BitsOf<T>>;
  using Unsigned = BitsOf<T>;

  Signed largest = std::numeric_limits<Signed>::min();
  Unsigned largest_unsigned = 0;
  Unsigned smallest_unsigned = std::numeric_limits<Unsigned>::max();

  bool all_finite() const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const bool below = largest < bits_as<Signed>(kInfinity);
    const bool above = largest_unsigned < bits_as<Unsigned>(-kInfinity);
    return below & above;
  }
  // The extremes of at least one value, all finite.
  RunExtremes<T> values() const {
    const bool none_negative = static_cast<Signed>(largest_unsigned) >= 0;
    return {bits_as<T>(none_negative ? smallest_unsigned : largest_unsigned),
            largest < 0 ? bits_as<T>(smallest_unsigned) : bits_as<T>(largest)};
  }
};

// Calls visit(i, x[i]) for every i in order and gathers the patterns of x, in one loop.
template <typename T, typename Visit>
BitExtremes<T> visit_with_extremes(std::int64_t count, const T* x, Visit&& visit) {
  using Signed = typename BitExtremes<T>::Signed;
  using Unsigned = typename BitExtremes<T>::Unsigned;
  BitExtremes<T> seen;
  Signed largest = seen.largest;
  Unsigned largest_unsigned = seen.largest_unsigned;
  Unsigned smallest_unsigned = seen.smallest_unsigned;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = x[i];
    largest = std::max(largest, bits_as<Signed>(value));
    largest_unsigned = std::max(largest_unsigned, bits_as<Unsigned>(value));
    smallest_unsigned = std::min(smallest_unsigned, bits_as<Unsigned>(value));
    visit(i, value);
  }
  return {largest, largest_unsigned, smallest_unsigned};
}

// The extremes of a run in which some values may not be finite: one by one, since it is rare.
template <typename T>
RunExtremes<T> finite_extremes(std::int64_t count, const T* x) {
  RunExtremes<T> run;
  for (std::int64_t i = 0; i < count; ++i) take_values(1, x + i, &run.lo, &run.hi, &run.skipped);
  return run;
}

template <typename T>
RunExtremes<T> extremes_of_run(std::int64_t count, const T* x) {
  if (count == 0) return {};
  const BitExtremes<T> seen = visit_with_extremes(count, x, [](std::int64_t, T) {});
  return seen.all_finite() ? seen.values() : finite_extremes(count, x);
}

template <typename T>
bool all_finite(std::int64_t count, const T* x) {
  using Bits = typename BitExtremes<T>::Signed;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max();
  Bits largest = 0;
  STEELYARD_VECTORIZE
  for (std::int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, bits_as<Bits>(x[i]) & kMagnitude);
  }
  return largest < bits_as<Bits>(std::numeric_limits<T>::infinity());
}

// take_values() of `rows` rows of `count` values, which follow each other.
template <typename T, typename Count>
void take_rows(std::int64_t rows, std::int64_t count, const T* x, T* lo, T* hi, Count* skipped) {
  constexpr int kTogether = 4;
  std::int64_t row = 0;
  if (all_finite(rows * count, x)) {
    for (; row + kTogether <= rows; row += kTogether) {
      take_finite_rows<kTogether>(count, x + row * count, lo, hi);
    }
    for (; row < rows; ++row) take_finite_rows<1>(count, x + row * count, lo, hi);
  }
  for (; row < rows; ++row) take_values(count, x + row * count, lo, hi, skipped);
}

}  // namespace steelyard::kernels
