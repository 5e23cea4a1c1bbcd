// Elementwise operations and small reductions on dense arrays. T is float or double.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

template <typename T>
void add(std::int64_t n, const T* a, const T* b, T* y);  // y may alias a or b
template <typename T>
void multiply(std::int64_t n, const T* a, const T* b, T* y);
template <typename T>
void scale(std::int64_t n, const T* x, T factor, T* y);  // y may alias x
template <typename T>
void scale_by(std::int64_t n, const T* x, const T* factor, T* y);  // y = x * *factor
// y = (1 - weight) * a + weight * b, in double.
template <typename T>
void mix(std::int64_t n, double weight, const T* a, const T* b, T* y);
template <typename T>
void fill(std::int64_t n, T value, T* y);

// y = max(x, 0), and with a finite ceiling min(max(x, 0), ceiling) (ReLU6: 6); NaN stays NaN.
template <typename T>
void relu_forward(std::int64_t n, const T* x, T ceiling, T* y);
// grad_x = grad_y where 0 < y < ceiling or y is NaN, else 0; reads the output y, as PyTorch does.
template <typename T>
void relu_backward(std::int64_t n, const T* y, const T* grad_y, T ceiling, T* grad_x);

// y[r, c] = x[r, c] + bias[c]; y may alias x.
template <typename T>
void add_bias(std::int64_t rows, std::int64_t channels, const T* x, const T* bias, T* y);
// sums[c] = sum over rows of x[r, c], in an order that does not depend on the thread count.
template <typename T>
void column_sums(std::int64_t rows, std::int64_t channels, const T* x, T* sums);

// *mean = mean of (a - b)^2, summed in double; grad_a = 2 (a - b) / n when not null.
template <typename T>
void mean_squared_error(std::int64_t n, const T* a, const T* b, T* mean, T* grad_a);

// *mean = mean of 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta), d = a - b, summed in
// double; grad_a = clamp(d, -delta, delta) / n when not null.
template <typename T>
void mean_huber_error(std::int64_t n, const T* a, const T* b, double delta, T* mean, T* grad_a);

// *count = number of elements that are NaN or infinite.
template <typename T>
void count_non_finite(std::int64_t n, const T* x, std::int64_t* count);

// *sum += weight * *x.
template <typename T>
void add_weighted(const T* x, double weight, double* sum);

// NHWC [batch, pixels, channels] <-> NCHW [batch, channels, pixels].
template <typename T>
void nhwc_to_nchw(std::int64_t batch, std::int64_t pixels, std::int64_t channels, const T* x, T* y);
template <typename T>
void nchw_to_nhwc(std::int64_t batch, std::int64_t pixels, std::int64_t channels, const T* x, T* y);
// (nhwc_to_nchw is also instantiated for int8_t and uint8_t.)

// y[r, c] = x[r, c] for the first `columns` of every row; strides count elements from row to row.
template <typename T>
void copy_columns(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t x_stride, T* y,
                  std::int64_t y_stride);

// Exchanges the bytes of a and b.
void swap_bytes(std::int64_t bytes, void* a, void* b);

// The same on a GPU.
template <typename T>
void add(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y);
template <typename T>
void multiply(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y);
template <typename T>
void scale(const CudaQueue& queue, std::int64_t n, const T* x, T factor, T* y);
template <typename T>
void scale_by(const CudaQueue& queue, std::int64_t n, const T* x, const T* factor, T* y);
template <typename T>
void mix(const CudaQueue& queue, std::int64_t n, double weight, const T* a, const T* b, T* y);
template <typename T>
void relu_forward(const CudaQueue& queue, std::int64_t n, const T* x, T ceiling, T* y);
template <typename T>
void relu_backward(const CudaQueue& queue, std::int64_t n, const T* y, const T* grad_y, T ceiling,
                   T* grad_x);
template <typename T>
void add_bias(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
              const T* bias, T* y);
template <typename T>
void column_sums(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
                 T* sums);
template <typename T>
void mean_squared_error(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* mean,
                        T* grad_a);
template <typename T>
void mean_huber_error(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, double delta,
                      T* mean, T* grad_a);
template <typename T>
void count_non_finite(const CudaQueue& queue, std::int64_t n, const T* x, std::int64_t* count);
template <typename T>
void add_weighted(const CudaQueue& queue, const T* x, double weight, double* sum);
template <typename T>
void nhwc_to_nchw(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                  std::int64_t channels, const T* x, T* y);
template <typename T>
void nchw_to_nhwc(const CudaQueue& queue, std::int64_t batch, std::int64_t pixels,
                  std::int64_t channels, const T* x, T* y);
template <typename T>
void copy_columns(const CudaQueue& queue, std::int64_t rows, std::int64_t columns, const T* x,
                  std::int64_t x_stride, T* y, std::int64_t y_stride);
void swap_bytes(const CudaQueue& queue, std::int64_t bytes, void* a, void* b);
// For every integer type of tensors too, bool as std::uint8_t.
template <typename T>
void fill(const CudaQueue& queue, std::int64_t n, T value, T* y);

}  // namespace steelyard::kernels
