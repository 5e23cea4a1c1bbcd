#include "kernels/elementwise.h"

#include "kernels/cuda/grid.h"
#include "kernels/elementwise_formulas.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::launch_elements;

template <typename T>
__global__ void add_kernel(std::int64_t n, const T* a, const T* b, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = a[i] + b[i];
}

template <typename T>
__global__ void multiply_kernel(std::int64_t n, const T* a, const T* b, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = a[i] * b[i];
}

template <typename T>
__global__ void scale_kernel(std::int64_t n, const T* x, T factor, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = x[i] * factor;
}

template <typename T>
__global__ void scale_by_kernel(std::int64_t n, const T* x, const T* factor, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = x[i] * *factor;
}

template <typename T>
__global__ void mix_kernel(std::int64_t n, double weight, const T* a, const T* b, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = mixed(weight, a[i], b[i]);
}

template <typename T>
__global__ void add_weighted_kernel(std::int64_t n, const T* x, double weight, double* sum) {
  if (element_index() < n) *sum += weight * static_cast<double>(*x);
}

// n words of 8 bytes, where they lie on such; the last may be shorter.
__global__ void swap_kernel(std::int64_t n, std::int64_t bytes, unsigned char* a,
                            unsigned char* b) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t end = 8 * i + 8 < bytes ? 8 * i + 8 : bytes;
  if (end == 8 * i + 8 && cuda::is_aligned(a, 8) && cuda::is_aligned(b, 8)) {
    auto* first = reinterpret_cast<unsigned long long*>(a) + i;
    auto* second = reinterpret_cast<unsigned long long*>(b) + i;
    const unsigned long long word = *first;
    *first = *second;
    *second = word;
    return;
  }
  for (std::int64_t at = 8 * i; at < end; ++at) {
    const unsigned char byte = a[at];
    a[at] = b[at];
    b[at] = byte;
  }
}

template <typename T>
__global__ void fill_kernel(std::int64_t n, T value, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = value;
}

template <typename T>
__global__ void relu_forward_kernel(std::int64_t n, const T* x, T ceiling, T* y) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const T v = x[i];
  const T floored = v <= T(0) ? T(0) : v;
  y[i] = floored > ceiling ? ceiling : floored;
}

template <typename T>
__global__ void relu_backward_kernel(std::int64_t n, const T* y, const T* grad_y, T ceiling,
                                     T* grad_x) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const bool stopped = y[i] <= T(0) || y[i] >= ceiling;
  grad_x[i] = stopped ? T(0) : grad_y[i];
}

template <typename T>
__global__ void add_bias_kernel(std::int64_t n, std::int64_t channels, const T* x, const T* bias,
                                T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = x[i] + bias[i - cuda::divide(i, channels) * channels];
}

template <typename T>
__global__ void copy_columns_kernel(std::int64_t n, std::int64_t columns, const T* x,
                                    std::int64_t x_stride, T* y, std::int64_t y_stride) {
  const std::int64_t i = element_index();
  if (i >= n) return;
  const std::int64_t row = cuda::divide(i, columns);
  const std::int64_t column = i - row * columns;
  y[row * y_stride + column] = x[row * x_stride + column];
}

}  // namespace

template <typename T>
void add(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y) {
  launch_elements(queue, add_kernel<T>, n, a, b, y);
}

template <typename T>
void multiply(const CudaQueue& queue, std::int64_t n, const T* a, const T* b, T* y) {
  launch_elements(queue, multiply_kernel<T>, n, a, b, y);
}

template <typename T>
void scale(const CudaQueue& queue, std::int64_t n, const T* x, T factor, T* y) {
  launch_elements(queue, scale_kernel<T>, n, x, factor, y);
}

template <typename T>
void scale_by(const CudaQueue& queue, std::int64_t n, const T* x, const T* factor, T* y) {
  launch_elements(queue, scale_by_kernel<T>, n, x, factor, y);
}

template <typename T>
void mix(const CudaQueue& queue, std::int64_t n, double weight, const T* a, const T* b, T* y) {
  launch_elements(queue, mix_kernel<T>, n, weight, a, b, y);
}

template <typename T>
void add_weighted(const CudaQueue& queue, const T* x, double weight, double* sum) {
  launch_elements(queue, add_weighted_kernel<T>, 1, x, weight, sum);
}

void swap_bytes(const CudaQueue& queue, std::int64_t bytes, void* a, void* b) {
  launch_elements(queue, swap_kernel, (bytes + 7) / 8, bytes, static_cast<unsigned char*>(a),
                  static_cast<unsigned char*>(b));
}

template <typename T>
void add_bias(const CudaQueue& queue, std::int64_t rows, std::int64_t channels, const T* x,
              const T* bias, T* y) {
  launch_elements(queue, add_bias_kernel<T>, rows * channels, channels, x, bias, y);
}

template <typename T>
void copy_columns(const CudaQueue& queue, std::int64_t rows, std::int64_t columns, const T* x,
                  std::int64_t x_stride, T* y, std::int64_t y_stride) {
  launch_elements(queue, copy_columns_kernel<T>, rows * columns, columns, x, x_stride, y, y_stride);
}

template <typename T>
void fill(const CudaQueue& queue, std::int64_t n, T value, T* y) {
  launch_elements(queue, fill_kernel<T>, n, value, y);
}

template <typename T>
void relu_forward(const CudaQueue& queue, std::int64_t n, const T* x, T ceiling, T* y) {
  launch_elements(queue, relu_forward_kernel<T>, n, x, ceiling, y);
}

template <typename T>
void relu_backward(const CudaQueue& queue, std::int64_t n, const T* y, const T* grad_y, T ceiling,
                   T* grad_x) {
  launch_elements(queue, relu_backward_kernel<T>, n, y, grad_y, ceiling, grad_x);
}

#define STEELYARD_INSTANTIATE(T)                                                                   \
  template void add(const CudaQueue&, std::int64_t, const T*, const T*, T*);                       \
  template void multiply(const CudaQueue&, std::int64_t, const T*, const T*, T*);                  \
  template void scale(const CudaQueue&, std::int64_t, const T*, T, T*);                            \
  template void scale_by(const CudaQueue&, std::int64_t, const T*, const T*, T*);                  \
  template void mix(const CudaQueue&, std::int64_t, double, const T*, const T*, T*);               \
  template void add_weighted(const CudaQueue&, const T*, double, double*);                         \
  template void add_bias(const CudaQueue&, std::int64_t, std::int64_t, const T*, const T*, T*);    \
  template void copy_columns(const CudaQueue&, std::int64_t, std::int64_t, const T*, std::int64_t, \
                             T*, std::int64_t);                                                    \
  template void relu_forward(const CudaQueue&, std::int64_t, const T*, T, T*);                     \
  template void relu_backward(const CudaQueue&, std::int64_t, const T*, const T*, T, T*);          \
  template void fill(const CudaQueue&, std::int64_t, T, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void fill(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t*);
template void fill(const CudaQueue&, std::int64_t, std::int32_t, std::int32_t*);
template void fill(const CudaQueue&, std::int64_t, std::int8_t, std::int8_t*);
template void fill(const CudaQueue&, std::int64_t, std::uint8_t, std::uint8_t*);

}  // namespace steelyard::kernels
