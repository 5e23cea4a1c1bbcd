// Rotary position embedding: pairs of a head's values, rotated by angles that grow with their
// position. Source: Su et al., "RoFormer", 2021, arXiv:2104.09864.
#pragma once

#include <cmath>

#include "steelyard/kernels/divide.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// starts [samples, length]: for each position of a sample the one after the last `border` among
// the tokens before it, 0 where there is none. n = samples * length.
template <typename T>
struct DocumentStarts {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n, length;
  T border;
  const T *tokens;
  T *starts;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t begin = divide(i, length) * length;
    std::int64_t start = i;
    while (start > begin && tokens[start - 1] != border) --start;
    starts[i] = static_cast<T>(start - begin);
  }
};

// cosines and sines [rows, pairs] of position * base^(-pair / pairs) / factors[pair], computed in
// double and rounded once; factors f32 [pairs] may be null. A row's position is `first` + row, or,
// with starts [samples, length] of as many rows, that in its sample less its start. n = rows *
// pairs.
template <typename T>
struct RotaryAngles {
  static constexpr std::int64_t kGrain = 256;
  std::int64_t n, pairs, first, length;
  double base;
  const float *factors;
  const T *starts;
  T *cosines, *sines;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = divide(i, pairs), pair = i - row * pairs;
    const double exponent = -static_cast<double>(pair) / static_cast<double>(pairs);
    double frequency = std::pow(base, exponent);
    if (factors != nullptr) frequency /= static_cast<double>(factors[pair]);
    std::int64_t position = first + row;
    if (starts != nullptr) {
      position = row - divide(row, length) * length - static_cast<std::int64_t>(starts[row]);
    }
    const double angle = static_cast<double>(position) * frequency;
    cosines[i] = static_cast<T>(std::cos(angle));
    sines[i] = static_cast<T>(std::sin(angle));
  }
};

// y [samples * length, heads, 2 * pairs]: each pair (a, b) of x becomes (a cos - b sin, a sin + b
// cos), with the angle of its row's position. A pair is two neighbours, or, with `halves`, values
// that lie `pairs` apart. `direction` is 1, or -1 for the gradient. n = all pairs.
template <typename T>
struct Rotate {
  static constexpr std::int64_t kGrain = 2048;
  std::int64_t n, length, heads, pairs;
  bool halves;
  const T *x, *cosines, *sines;
  T direction;
  T *y;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t head = divide(i, pairs), pair = i - head * pairs;
    const std::int64_t row = divide(head, heads);
    const std::int64_t at = (row - divide(row, length) * length) * pairs + pair;
    const std::int64_t first = head * 2 * pairs + (halves ? pair : 2 * pair);
    const std::int64_t second = first + (halves ? pairs : 1);
    const T a = x[first], b = x[second];
    const T c = cosines[at], s = direction * sines[at];
    y[first] = a * c - b * s;
    y[second] = a * s + b * c;
  }
};

using RotaryKernels = ForFloats<DocumentStarts, RotaryAngles, Rotate>;

}  // namespace steelyard::kernels
