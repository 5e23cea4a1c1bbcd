#include "kernels/elementwise.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/map.h"
#include "kernels/cpu/row_sums.h"
#include "kernels/elementwise_formulas.h"

namespace steelyard::kernels {
namespace {

// Transposes `batch` matrices [rows, columns] in blocks that stay in the cache.
template <typename T>
void transpose_batch(std::int64_t batch, std::int64_t rows, std::int64_t columns, const T* x,
                     T* y) {
  constexpr std::int64_t kBlockElements = 16;
  const std::int64_t bands = (rows + kBlockElements - 1) / kBlockElements;
  const std::int64_t grain =
      std::max<std::int64_t>(1, kMapGrain / (kBlockElements * std::max<std::int64_t>(columns, 1)));
  parallel_for(batch * bands, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t band = begin; band < end; ++band) {
      const T* from = x + band / bands * rows * columns;
      T* to = y + band / bands * rows * columns;
      const std::int64_t r0 = band % bands * kBlockElements,
                         r1 = std::min(rows, r0 + kBlockElements);
      for (std::int64_t c0 = 0; c0 < columns; c0 += kBlockElements) {
        const std::int64_t c1 = std::min(columns, c0 + kBlockElements);
        for (std::int64_t c = c0; c < c1; ++c) {
          for (std::int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  });
}

}  // namespace

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* y) {
  map(n, [a, b, y](std::int64_t i) { y[i] = a[i] + b[i]; });
}

template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* y) {
  map(n, [a, b, y](std::int64_t i) { y[i] = a[i] * b[i]; });
}

template <typename T>
void scale(std::int64_t n, const T* x, T factor, T* y) {
  map(n, [x, factor, y](std::int64_t i) { y[i] = x[i] * factor; });
}

template <typename T>
void scale_by(std::int64_t n, const T* x, const T* factor, T* y) {
  scale(n, x, *factor, y);
}

template <typename T>
void mix(std::int64_t n, double weight, const T* a, const T* b, T* y) {
  map(n, [weight, a, b, y](std::int64_t i) { y[i] = mixed(weight, a[i], b[i]); });
}

template <typename T>
void fill(std::int64_t n, T value, T* y) {
  map(n, [value, y](std::int64_t i) { y[i] = value; });
}

template <typename T>
void relu_forward(std::int64_t n, const T* x, T ceiling, T* y) {
  map(n, [x, ceiling, y](std::int64_t i) {
    const T v = x[i];
    const T floored = v <= T(0) ? T(0) : v;
    y[i] = floored > ceiling ? ceiling : floored;
  });
}

template <typename T>
void relu_backward(std::int64_t n, const T* y, const T* grad_y, T ceiling, T* grad_x) {
  map(n, [y, grad_y, ceiling, grad_x](std::int64_t i) {
    const T g = grad_y[i];
    const bool flat = (y[i] <= T(0)) | (y[i] >= ceiling);
    grad_x[i] = flat ? T(0) : g;
  });
}

template <typename T>
void add_bias(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, T* y) {
  if (rows * channels == 0) return;
  const RowChunks layout(rows, channels);
  const std::vector<T> wide = widen<T>(layout, bias);
  map_rows(layout, [x, y, b = wide.data()](std::int64_t i, std::int64_t c) { y[i] = x[i] + b[c]; });
}

template <typename T>
void column_sums(std::int64_t rows, std::int64_t channels, const T* x, T* sums) {
  if (channels == 0) return;
  const std::vector<double> totals =
      row_sums(RowChunks(rows, channels), [x](std::int64_t i, std::int64_t) { return x[i]; });
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = T(totals[c]);
}

template <typename T>
void mean_squared_error(std::int64_t n, const T* a, const T* b, T* mean, T* grad_a) {
  const double sum = row_sums(RowChunks(n, 1), [a, b](std::int64_t i, std::int64_t) {
    return squared_error(a[i], b[i]);
  })[0];
  *mean = T(sum / double(n));
  if (grad_a == nullptr) return;
  map(n, [a, b, n, grad_a](std::int64_t i) { grad_a[i] = squared_error_slope(a[i], b[i], n); });
}

template <typename T>
void mean_huber_error(std::int64_t n, const T* a, const T* b, double delta, T* mean, T* grad_a) {
  const double sum = row_sums(RowChunks(n, 1), [a, b, delta](std::int64_t i, std::int64_t) {
    return huber_error(a[i], b[i], delta);
  })[0];
  *mean = T(sum / double(n));
  if (grad_a == nullptr) return;
  map(n, [a, b, delta, n, grad_a](std::int64_t i) {
    grad_a[i] = huber_error_slope(a[i], b[i], delta, n);
  });
}

template <typename T>
void count_non_finite(std::int64_t n, const T* x, std::int64_t* count) {
  // Counts up to 2^53 are exact in double.
  *count = static_cast<std::int64_t>(row_sums(RowChunks(n, 1), [x](std::int64_t i, std::int64_t) {
    return is_finite(x[i]) ? T(0) : T(1);
  })[0]);
}

template <typename T>
void add_weighted(const T* x, double weight, double* sum) {
  *sum += weight * double(*x);
}

template <typename T>
void nhwc_to_nchw(std::int64_t batch, std::int64_t pixels, std::int64_t channels, const T* x,
                  T* y) {
  transpose_batch(batch, pixels, channels, x, y);
}

template <typename T>
void nchw_to_nhwc(std::int64_t batch, std::int64_t pixels, std::int64_t channels, const T* x,
                  T* y) {
  transpose_batch(batch, channels, pixels, x, y);
}

template <typename T>
void copy_columns(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                  std::int64_t y_stride) {
  if (columns == 0) return;
  parallel_for(rows, std::max<std::int64_t>(1, kMapGrain / columns),
               [=](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t r = begin; r < end; ++r) {
                   std::copy_n(x + r * x_stride, columns, y + r * y_stride);
                 }
               });
}

void swap_bytes(std::int64_t bytes, void* a, void* b) {
  auto* first = static_cast<std::byte*>(a);
  std::swap_ranges(first, first + bytes, static_cast<std::byte*>(b));
}

template void add(std::int64_t, const float*, const float*, float*);
template void add(std::int64_t, const double*, const double*, double*);
template void multiply(std::int64_t, const float*, const float*, float*);
template void multiply(std::int64_t, const double*, const double*, double*);
template void scale(std::int64_t, const float*, float, float*);
template void scale(std::int64_t, const double*, double, double*);
template void scale_by(std::int64_t, const float*, const float*, float*);
template void scale_by(std::int64_t, const double*, const double*, double*);
template void mix(std::int64_t, double, const float*, const float*, float*);
template void mix(std::int64_t, double, const double*, const double*, double*);
template void fill(std::int64_t, float, float*);
template void fill(std::int64_t, double, double*);
template void relu_forward(std::int64_t, const float*, float, float*);
template void relu_forward(std::int64_t, const double*, double, double*);
template void relu_backward(std::int64_t, const float*, const float*, float, float*);
template void relu_backward(std::int64_t, const double*, const double*, double, double*);
template void add_bias(std::int64_t, std::int64_t, const float*, const float*, float*);
template void add_bias(std::int64_t, std::int64_t, const double*, const double*, double*);
template void column_sums(std::int64_t, std::int64_t, const float*, float*);
template void column_sums(std::int64_t, std::int64_t, const double*, double*);
template void mean_squared_error(std::int64_t, const float*, const float*, float*, float*);
template void mean_squared_error(std::int64_t, const double*, const double*, double*, double*);
template void mean_huber_error(std::int64_t, const float*, const float*, double, float*, float*);
template void mean_huber_error(std::int64_t, const double*, const double*, double, double*,
                               double*);
template void count_non_finite(std::int64_t, const float*, std::int64_t*);
template void count_non_finite(std::int64_t, const double*, std::int64_t*);
template void add_weighted(const float*, double, double*);
template void add_weighted(const double*, double, double*);
template void nhwc_to_nchw(std::int64_t, std::int64_t, std::int64_t, const float*, float*);
template void nhwc_to_nchw(std::int64_t, std::int64_t, std::int64_t, const double*, double*);
template void nhwc_to_nchw(std::int64_t, std::int64_t, std::int64_t, const std::int8_t*,
                           std::int8_t*);
template void nhwc_to_nchw(std::int64_t, std::int64_t, std::int64_t, const std::uint8_t*,
                           std::uint8_t*);
template void nchw_to_nhwc(std::int64_t, std::int64_t, std::int64_t, const float*, float*);
template void nchw_to_nhwc(std::int64_t, std::int64_t, std::int64_t, const double*, double*);
template void copy_columns(std::int64_t, std::int64_t, const float*, std::int64_t, float*,
                           std::int64_t);
template void copy_columns(std::int64_t, std::int64_t, const double*, std::int64_t, double*,
                           std::int64_t);

}  // namespace steelyard::kernels
