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

// Sum of squares in double, thread-count independent order.
template <typename T>
double sum_of_squares(std::int64_t n, const T* x);
// Mean of (a - b)^2 in double; grad_a = 2 (a - b) / n when not null.
template <typename T>
double mean_squared_error(std::int64_t n, const T* a, const T* b, T* grad_a);

// Mean in double of 0.5 d^2 where |d| <= delta, else delta (|d| - 0.5 delta), d = a - b; grad_a =
// clamp(d, -delta, delta) / n when not null.
template <typename T>
double mean_huber_error(std::int64_t n, const T* a, const T* b, double delta, T* grad_a);

// average += weight * (x - average); a weight of 1 copies x.
template <typename T>
void move_average(std::int64_t n, double weight, const T* x, T* average);

// Number of elements that are NaN or infinite.
template <typename T>
std::int64_t count_non_finite(std::int64_t n, const T* x);

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

// One SGD step (PyTorch's formulas): g = grad + weight_decay * p; m = momentum * m + g (m = g on
// the first step, which a zero m gives); p -= lr * (nesterov ? g + momentum * m : m). m is null
// when momentum is 0.
struct SgdStep {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
template <typename T>
void sgd_update(std::int64_t n, const SgdStep& step, const T* grad, T* momentum_buffer, T* param);

// One AdamW step (Loshchilov and Hutter 2019; PyTorch's form). count is 1 on the first step.
struct AdamWStep {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  std::int64_t count = 1;
};
template <typename T>
void adamw_update(std::int64_t n, const AdamWStep& step, const T* grad, T* exp_avg, T* exp_avg_sq,
                  T* param);

// The same on a GPU.
template <typename T>
void add(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y);
template <typename T>
void multiply(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y);
template <typename T>
void scale(const CudaQueue& queue, std::int64_t n, const T* x, T factor, T* y);
template <typename T>
void relu_forward(const CudaQueue& queue, std::int64_t n, const T* x, T ceiling, T* y);
template <typename T>
void relu_backward(const CudaQueue& queue, std::int64_t n, const T* y, const T* grad_y, T ceiling,
                   T* grad_x);
// For every integer type of tensors too, bool as std::uint8_t.
template <typename T>
void fill(const CudaQueue& queue, std::int64_t n, T value, T* y);

}  // namespace steelyard::kernels
