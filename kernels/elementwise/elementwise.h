// Elementwise operations and small reductions on dense arrays. T is float or double.
#pragma once

#include <cmath>
#include <tuple>

#include "steelyard/kernels/run.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels {

// y = a + b; y may alias either.
template <typename T>
struct Add {
  std::int64_t n;
  const T *a, *b;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = a[i] + b[i]; }
};

// y = a + b in bfloat16, added in float and rounded once; y may alias either.
struct AddRounded {
  std::int64_t n;
  const BFloat16 *a, *b;
  BFloat16* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = narrow<BFloat16>(widen(a[i]) + widen(b[i]));
  }
};

// y = x * factor; y may alias x.
template <typename T>
struct Scale {
  std::int64_t n;
  const T* x;
  T factor;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] * factor; }
};
// y = x * *factor, with a factor that lies on the device; y may alias x.
template <typename T>
struct ScaleBy {
  std::int64_t n;
  const T *x, *factor;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = x[i] * *factor; }
};

// y = (1 - weight) * a + weight * b, in double.
template <typename T>
struct Mix {
  std::int64_t n;
  double weight;
  const T *a, *b;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    y[i] = static_cast<T>((1 - weight) * static_cast<double>(a[i]) +
                          weight * static_cast<double>(b[i]));
  }
};

// For every integer type of tensors too, bool as std::uint8_t.
template <typename T>
struct Fill {
  std::int64_t n;
  T value;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { y[i] = value; }
};

// y = max(x, 0), and with a finite ceiling min(max(x, 0), ceiling) (ReLU6: 6); NaN stays NaN.
template <typename T>
struct Relu {
  std::int64_t n;
  const T* x;
  T ceiling;
  T* y;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T v = x[i];
    const T floored = v <= T(0) ? T(0) : v;
    y[i] = floored > ceiling ? ceiling : floored;
  }
};
// grad_x = grad_y where 0 < y < ceiling or y is NaN, else 0; reads the output y, as PyTorch does.
template <typename T>
struct ReluBackward {
  std::int64_t n;
  const T *y, *grad_y;
  T ceiling;
  T* grad_x;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T g = grad_y[i];
    const bool flat = (y[i] <= T(0)) | (y[i] >= ceiling);
    grad_x[i] = flat ? T(0) : g;
  }
};

// y[r, c] = x[r, c] + bias[c]; y may alias x.
template <typename T>
struct AddBias {
  std::int64_t rows, channels;
  const T *x, *bias;
  T* y;
  static constexpr auto per_channel() { return std::tuple{&AddBias::bias}; }
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i, std::int64_t c) const {
    y[i] = x[i] + bias[c];
  }
};
// sums[c] = sum over rows of x[r, c], in an order that does not depend on the thread count.
template <typename T>
struct ColumnSums {
  static constexpr int kTerms = 1;
  std::int64_t rows, channels;
  const T* x;
  T* sums;
  template <int>
  STEELYARD_HOST_DEVICE T term(std::int64_t i, std::int64_t) const {
    return x[i];
  }
  STEELYARD_HOST_DEVICE void finish(std::int64_t c, const double (&sum)[1]) const {
    sums[c] = static_cast<T>(sum[0]);
  }
};

// y[r, c] = x[r, c] for the first `columns` of every row; strides count elements from row to row.
template <typename T>
struct CopyColumns {
  std::int64_t rows, columns;
  const T* x;
  std::int64_t x_stride;
  T* y;
  std::int64_t y_stride;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t row, std::int64_t column) const {
    y[row * y_stride + column] = x[row * x_stride + column];
  }
};

template <typename T>
STEELYARD_HOST_DEVICE inline bool is_finite(T x) {
  return x - x == T(0);
}

// *count = number of elements that are NaN or infinite; counts up to 2^53 are exact in double.
template <typename T>
struct CountNonFinite {
  std::int64_t n;
  const T* x;
  std::int64_t* count;
  STEELYARD_HOST_DEVICE T term(std::int64_t i) const { return is_finite(x[i]) ? T(0) : T(1); }
  STEELYARD_HOST_DEVICE void finish(double sum) const { *count = static_cast<std::int64_t>(sum); }
};

// *sum += weight * *x.
template <typename T>
struct AddWeighted {
  const T* x;
  double weight;
  double* sum;
  STEELYARD_HOST_DEVICE void operator()() const { *sum += weight * static_cast<double>(*x); }
};

// Exchanges the elements of a and b; T is std::uint8_t too.
template <typename T>
struct Swap {
  std::int64_t n;
  T *a, *b;
  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const {
    const T old = a[i];
    a[i] = b[i];
    b[i] = old;
  }
};

using ElementwiseKernels =
    JoinedKernels<ForFloats<Add, Scale, ScaleBy, Mix, Fill, Relu, ReluBackward, AddBias, ColumnSums,
                            CopyColumns, CountNonFinite, AddWeighted, Swap>,
                  ForTypes<Fill, std::int64_t, std::int32_t, std::int8_t, std::uint8_t>,
                  KernelList<AddRounded, Swap<std::uint8_t>>>;

}  // namespace steelyard::kernels
