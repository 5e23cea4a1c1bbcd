#include "kernels/elementwise.h"

#include "kernels/cuda/grid.h"

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

#define STEELYARD_INSTANTIATE(T)                                                          \
  template void add(const CudaQueue&, std::int64_t, const T*, const T*, T*);              \
  template void multiply(const CudaQueue&, std::int64_t, const T*, const T*, T*);         \
  template void scale(const CudaQueue&, std::int64_t, const T*, T, T*);                   \
  template void relu_forward(const CudaQueue&, std::int64_t, const T*, T, T*);            \
  template void relu_backward(const CudaQueue&, std::int64_t, const T*, const T*, T, T*); \
  template void fill(const CudaQueue&, std::int64_t, T, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE
template void fill(const CudaQueue&, std::int64_t, std::int64_t, std::int64_t*);
template void fill(const CudaQueue&, std::int64_t, std::int32_t, std::int32_t*);
template void fill(const CudaQueue&, std::int64_t, std::int8_t, std::int8_t*);
template void fill(const CudaQueue&, std::int64_t, std::uint8_t, std::uint8_t*);

}  // namespace steelyard::kernels
