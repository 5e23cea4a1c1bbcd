// Arithmetic on operands of different shapes, comparisons, choices, sums over axes and copies of
// parts. T is float or double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/requantize/formulas.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

inline constexpr int kMaxBroadcastAxes = 8;

// Where element i of a row-major array of `sizes` lies in an array of other strides (0 where that
// repeats its elements).
struct StridedIndex {
  int axes = 0;
  std::int64_t sizes[kMaxBroadcastAxes] = {};
  std::int64_t strides[kMaxBroadcastAxes] = {};

  STEELYARD_HOST_DEVICE std::int64_t operator()(std::int64_t i) const {
    if (axes == 1) return i * strides[0];
    std::int64_t at = 0;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const std::int64_t next = divide(i, sizes[axis]);
      at += (i - next * sizes[axis]) * strides[axis];
      i = next;
    }
    return at;
  }

  // The elements from i on whose places are a step apart.
  std::int64_t run(std::int64_t i) const {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    return axes <= 1 ? kAll : sizes[axes - 1] - i % sizes[axes - 1];
  }
  std::int64_t step() const { return axes == 0 ? 0 : strides[axes - 1]; }
};

// y[to(i)] = x[from(i)]: parts of arrays, backwards too where a stride is negative. Of codes too.
template <typename T>
struct CopyStrided {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  const T* x;
  StridedIndex from;
  T* y;
  StridedIndex to;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[to(i)] = x[from(i)]; }

  static constexpr std::int64_t kTogether = 1 << 16;
  std::int64_t neighbours(std::int64_t i) const { return std::min(from.run(i), to.run(i)); }
  void together(std::int64_t i, std::int64_t count) const {
    const std::int64_t from_step = from.step(), to_step = to.step();
    const T* const source = x + from(i);
    T* const target = y + to(i);
    for (std::int64_t k = 0; k < count; ++k) target[k * to_step] = source[k * from_step];
  }
};

// y[i] = F(a[i], b[i]).
template <typename T, class F>
struct Combine {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  const T* a;
  StridedIndex at_a;
  const T* b;
  StridedIndex at_b;
  T* y;

  struct Body {
    const T *a, *b;
    T* y;
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t in_a,
                                          std::int64_t in_b) const {
      y[i] = F::of(a[in_a], b[in_b]);
    }
  };
  STEELYARD_HOST_DEVICE Body body() const { return {a, b, y}; }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { body()(i, at_a(i), at_b(i)); }
};
struct Difference {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a - b; }
};
struct Product {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a * b; }
};
struct Quotient {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a / b; }
};
struct QuotientOrZero {  // 0 where the divisor is 0
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return b == 0 ? decltype(a)(0) : a / b; }
};
struct Total {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a + b; }
};
// The larger and the smaller one; a NaN wins.
struct Largest {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a > b || a != a ? a : b; }
};
struct Smallest {
  STEELYARD_HOST_DEVICE static auto of(auto a, auto b) { return a < b || a != a ? a : b; }
};

// The gradient of the larger (or smaller) of a[i] and b[i] that reaches a: all of it, or half where
// both are equal.
template <typename T>
struct ShareOfExtreme {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  bool largest;
  const T* a;
  StridedIndex at_a;
  const T* b;
  StridedIndex at_b;
  const T* grad_y;
  T* grad_a;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T own = a[at_a(i)];
    const T other = b[at_b(i)];
    const bool won = largest ? own > other : own < other;
    grad_a[i] = own == other ? grad_y[i] / T(2) : won ? grad_y[i] : T(0);
  }
};

// Products of codes: y[i] = float((a[i] - z_a) * (b[i] - z_b)) * (s_a * s_b / scale), in units of
// the output's scale, or real values where `scale` is null. Codes are int8_t or uint8_t, their
// products exact.
template <typename A, typename B>
struct MultiplyCodes {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  CodesOf<A> a;
  StridedIndex at_a;
  CodesOf<B> b;
  StridedIndex at_b;
  const float* scale;
  float* y;

  struct Body {
    const A* a;
    const B* b;
    std::int32_t zero_a, zero_b;
    float factor;
    float* y;
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t in_a,
                                          std::int64_t in_b) const {
      const std::int32_t product = (static_cast<std::int32_t>(a[in_a]) - zero_a) *
                                   (static_cast<std::int32_t>(b[in_b]) - zero_b);
      y[i] = static_cast<float>(product) * factor;
    }
  };
  STEELYARD_HOST_DEVICE Body body() const {
    const float real = *a.scale * *b.scale;
    return {a.codes, b.codes, *a.zero_point, *b.zero_point, scale == nullptr ? real : real / *scale,
            y};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { body()(i, at_a(i), at_b(i)); }
};

// Codes of either type as bytes, with the one scale and zero point of their tensor.
struct BytesOf {
  const std::uint8_t* bytes;
  const float* scale;
  const std::int32_t* zero_point;
  bool is_signed;

  // From a byte to the code above the lowest of its type, and the zero point likewise.
  STEELYARD_HOST_DEVICE std::uint8_t flip() const { return is_signed ? 0x80 : 0; }
  STEELYARD_HOST_DEVICE std::int32_t zero() const { return *zero_point + (is_signed ? 128 : 0); }
};

// The codes of such products (MulRequantizer), s8 or u8: one loop for all types.
struct MultiplyToCodes {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  BytesOf a;
  StridedIndex at_a;
  BytesOf b;
  StridedIndex at_b;
  const float* scale;
  const std::int32_t* zero_point;
  CodeRange range;
  bool is_signed;
  std::uint8_t* codes;

  struct Body {
    const std::uint8_t *a, *b;
    std::uint8_t flip_a, flip_b;
    std::int32_t zero_a, zero_b;
    MulRequantizer mul;
    std::uint8_t* codes;
    STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t in_a,
                                          std::int64_t in_b) const {
      const std::int32_t product = ((a[in_a] ^ flip_a) - zero_a) * ((b[in_b] ^ flip_b) - zero_b);
      codes[i] = static_cast<std::uint8_t>(requantized_mul_code(product, mul));
    }
  };
  STEELYARD_HOST_DEVICE Body body() const {
    return {a.bytes,
            b.bytes,
            a.flip(),
            b.flip(),
            a.zero(),
            b.zero(),
            make_mul_requantizer(*a.scale, *b.scale, *scale, *zero_point, range, is_signed),
            codes};
  }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { body()(i, at_a(i), at_b(i)); }
};

// holds[i] = 1 where a[i] > b[i] (or_equal: >=), else 0, also where one is a NaN.
template <typename T>
struct IsGreater {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  const T* a;
  StridedIndex at_a;
  const T* b;
  StridedIndex at_b;
  bool or_equal;
  std::uint8_t* holds;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T left = a[at_a(i)];
    const T right = b[at_b(i)];
    holds[i] = static_cast<std::uint8_t>(left > right || (or_equal && left == right));
  }
};

// y[i] = condition[i] ? a[i] : b[i].
template <typename T>
struct Choose {
  static constexpr std::int64_t kGrain = 4096;
  std::int64_t n;
  const std::uint8_t* condition;
  StridedIndex at_condition;
  const T* a;
  StridedIndex at_a;
  const T* b;
  StridedIndex at_b;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = condition[at_condition(i)] != 0 ? a[at_a(i)] : b[at_b(i)];
  }
};

// y[i] = the sum of x[kept(i) + summed(j)] over j in [0, count), in double and in that order.
template <typename T>
struct SumOverAxes {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n;
  const T* x;
  StridedIndex kept;
  std::int64_t count;
  StridedIndex summed;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T* const first = x + kept(i);
    double sum = 0;
    for (std::int64_t j = 0; j < count; ++j) sum += static_cast<double>(first[summed(j)]);
    y[i] = static_cast<T>(sum);
  }

  // On the CPU, results whose terms are neighbours are added together, in vectors.
  static constexpr std::int64_t kTogether = 64;
  std::int64_t neighbours(std::int64_t i) const { return kept.step() == 1 ? kept.run(i) : 1; }
  void together(std::int64_t i, std::int64_t results) const {
    const T* const first = x + kept(i);
    double sums[kTogether] = {};
    for (std::int64_t j = 0; j < count; ++j) {
      const T* const terms = first + summed(j);
      for (std::int64_t k = 0; k < results; ++k) sums[k] += static_cast<double>(terms[k]);
    }
    for (std::int64_t k = 0; k < results; ++k) y[i + k] = static_cast<T>(sums[k]);
  }
};

// y[i] = the largest (or smallest) x[kept(i) + reduced(j)] over j in [0, count); a NaN wins.
template <typename T>
struct ExtremeOverAxes {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n;
  bool largest;
  const T* x;
  StridedIndex kept;
  std::int64_t count;
  StridedIndex reduced;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T* const first = x + kept(i);
    T best = first[reduced(0)];
    for (std::int64_t j = 1; j < count; ++j) {
      const T v = first[reduced(j)];
      best = largest ? Largest::of(best, v) : Smallest::of(best, v);
    }
    y[i] = best;
  }
};
// grad_y[i] in equal parts for all x that are y[i], 0 for the others.
template <typename T>
struct ExtremeOverAxesBackward {
  static constexpr std::int64_t kGrain = 64;
  std::int64_t n;
  const T* x;
  StridedIndex kept;
  std::int64_t count;
  StridedIndex reduced;
  const T *y, *grad_y;
  T* grad_x;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t first = kept(i);
    std::int64_t equal = 0;
    for (std::int64_t j = 0; j < count; ++j) equal += x[first + reduced(j)] == y[i] ? 1 : 0;
    const T share = grad_y[i] / static_cast<T>(equal);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t at = first + reduced(j);
      grad_x[at] = x[at] == y[i] ? share : T(0);
    }
  }
};

// *y = the sum of x.
template <typename T>
struct SumOfAll {
  std::int64_t n;
  const T* x;
  T* y;
  STEELYARD_HOST_DEVICE double term(std::int64_t i) const { return static_cast<double>(x[i]); }
  STEELYARD_HOST_DEVICE void finish(double sum) const { *y = static_cast<T>(sum); }
};

template <typename T>
using CombineKernels = KernelList<Combine<T, Difference>, Combine<T, Product>, Combine<T, Quotient>,
                                  Combine<T, QuotientOrZero>, Combine<T, Total>,
                                  Combine<T, Largest>, Combine<T, Smallest>>;
using CodeProductKernels =
    KernelList<MultiplyCodes<std::int8_t, std::int8_t>, MultiplyCodes<std::int8_t, std::uint8_t>,
               MultiplyCodes<std::uint8_t, std::int8_t>, MultiplyCodes<std::uint8_t, std::uint8_t>>;
using BroadcastKernels =
    JoinedKernels<CodeProductKernels, KernelList<MultiplyToCodes>, CombineKernels<float>,
                  CombineKernels<double>,
                  ForTypes<CopyStrided, float, double, std::int8_t, std::uint8_t, std::int32_t>,
                  ForFloats<IsGreater, Choose, ShareOfExtreme, SumOverAxes, ExtremeOverAxes,
                            ExtremeOverAxesBackward, SumOfAll>>;

}  // namespace steelyard::kernels
