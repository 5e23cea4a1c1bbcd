#include "kernels/activation_formulas.h"
#include "kernels/cuda/grid.h"

namespace steelyard::kernels {
namespace {

using cuda::element_index;
using cuda::launch_elements;

template <typename T>
__global__ void forward_kernel(std::int64_t n, SmoothActivation activation, const T* x, T* y) {
  const std::int64_t i = element_index();
  if (i < n) y[i] = activation_value(activation, x[i]);
}

template <typename T>
__global__ void backward_kernel(std::int64_t n, SmoothActivation activation, const T* x,
                                const T* grad_y, T* grad_x) {
  const std::int64_t i = element_index();
  if (i < n) grad_x[i] = grad_y[i] * activation_slope(activation, x[i]);
}

}  // namespace

template <typename T>
void smooth_activation_forward(const CudaQueue& queue, SmoothActivation activation, std::int64_t n,
                               const T* x, T* y) {
  launch_elements(queue, forward_kernel<T>, n, activation, x, y);
}

template <typename T>
void smooth_activation_backward(const CudaQueue& queue, SmoothActivation activation, std::int64_t n,
                                const T* x, const T* grad_y, T* grad_x) {
  launch_elements(queue, backward_kernel<T>, n, activation, x, grad_y, grad_x);
}

#define STEELYARD_INSTANTIATE(T)                                                             \
  template void smooth_activation_forward(const CudaQueue&, SmoothActivation, std::int64_t,  \
                                          const T*, T*);                                     \
  template void smooth_activation_backward(const CudaQueue&, SmoothActivation, std::int64_t, \
                                           const T*, const T*, T*);
STEELYARD_INSTANTIATE(float)
STEELYARD_INSTANTIATE(double)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard::kernels
