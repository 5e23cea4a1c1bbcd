// Codes of many values that share a scale, without a division each: on a GPU a division costs as
// much as all other arithmetic of a code.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "steelyard/kernels/affine.h"

// Before a loop whose indexes the compiler has to know, for arrays in registers: for the GPU alone,
// as nvcc shows the pragma to the host compiler too, which warns.
#ifdef __CUDA_ARCH__
#define STEELYARD_UNROLLED _Pragma("unroll")
#else
#define STEELYARD_UNROLLED
#endif

namespace steelyard::kernels {

// A number added to which others become integers, which are its lowest bits: 1.5 * 2^23.
template <typename T>
inline constexpr T kToInteger = std::is_same_v<T, float> ? T(0x1.8p23) : T(0x1.8p52);

// The codes of one scale as multiples of it, which are the codes less their zero point: the same
// arithmetic as affine.h's with two additions fewer. Never -0.
template <typename T>
struct Multiples {
  T scale;
  T zero_point;
  T least;  // the code range
  T most;
  T reciprocal;  // for quick()
  T sure;        // for is_sure(): distances below it tell what a division would give

  Multiples() = default;
  STEELYARD_HOST_DEVICE explicit Multiples(const CodeGrid<T>& p)
      : scale(p.scale),
        zero_point(p.zero_point),
        least(p.qmin - p.zero_point),
        most(p.qmax - p.zero_point),
        reciprocal(1 / p.scale),
        sure(sure_distance()) {}

  // rint(x / s); of NaN 0.
  STEELYARD_HOST_DEVICE T of(T x) const {
    return x == x ? round_half_even(x / scale) + T(0) : T(0);
  }
  // What of() gives, where is_sure() says so; from about 2^21 on (2^50) another number that is as
  // far.
  STEELYARD_HOST_DEVICE T quick(T x) const {
    return std::fma(x, reciprocal, kToInteger<T>) - kToInteger<T>;
  }
  // Not of NaN and infinities.
  STEELYARD_HOST_DEVICE bool is_sure(T x, T quick_multiple) const {
    return std::fabs(std::fma(x, reciprocal, -quick_multiple)) < sure;
  }
  // Multiples outside of the code range become its ends.
  STEELYARD_HOST_DEVICE T clamp(T multiple) const {
    return std::fmin(std::fmax(multiple, least), most);
  }
  STEELYARD_HOST_DEVICE bool is_inside(T multiple) const {
    return !(multiple < least) & !(multiple > most);
  }
  // A number whose lowest bits, and those of its sum with a multiple, are the code.
  STEELYARD_HOST_DEVICE T code_of_zero() const { return kToInteger<T> + zero_point; }

 private:
  // How near to an integer x * reciprocal has to be for rint() of x / s to be that integer. Both
  // are off by half a unit in the last place at most, the reciprocal and the rounded quotient, so
  // they differ by 2^-23 |x / s|; twice that is kept, for an |x / s| that is two beyond the range.
  // Quotients further off round to integers out of the range with the sign of x * reciprocal. The
  // reciprocal of a power of two is exact: any distance will do. 0, so that no value is near
  // enough, where the reciprocal is no normal number or sums with kToInteger are no integers.
  STEELYARD_HOST_DEVICE T sure_distance() const {
    constexpr bool kFloat = std::is_same_v<T, float>;
    constexpr T kMost = kFloat ? T(0x1p60) : T(0x1p500);
    constexpr T kUnit = kFloat ? T(0x1p-22) : T(0x1p-51);
    const T range = (most > -least ? most : -least) + 2;
    const T distance = T(0.5) - range * kUnit;
    const bool usual = scale >= 1 / kMost && scale <= kMost && distance > 0;
    const bool exact = std::fma(reciprocal, scale, T(-1)) == 0;
    return !usual ? T(0) : exact ? T(1) : distance;
  }
};

// Multiples of values that share their scale; returns how many are NaN.
template <typename T, int n>
STEELYARD_HOST_DEVICE inline unsigned multiples_of(const T (&x)[n], const Multiples<T>& p,
                                                   T (&multiples)[n]) {
  bool all_sure = true;
  STEELYARD_UNROLLED
  for (int i = 0; i < n; ++i) {
    multiples[i] = p.quick(x[i]);
    all_sure &= p.is_sure(x[i], multiples[i]);
  }
  unsigned nan = 0;
  if (all_sure) return nan;
  STEELYARD_UNROLLED
  for (int i = 0; i < n; ++i) {
    if (p.is_sure(x[i], multiples[i])) continue;
    multiples[i] = p.of(x[i]);
    nan += x[i] != x[i] ? 1U : 0U;
  }
  return nan;
}

}  // namespace steelyard::kernels
