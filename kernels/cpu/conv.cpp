#include "kernels/conv.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/conv_eigen.h"
#include "kernels/cpu/onednn_kernels.h"
#include "kernels/elementwise.h"

namespace steelyard::kernels {
template <typename T>
void conv2d_forward(Backend backend, const Conv2dShape& shape, const T* x, const T* w,
                    const T* bias, T* y) {
  if (shape.output_size() == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (backend == Backend::kOneDnn) return onednn::conv2d_forward(shape, x, w, bias, y);
  }
  eigen::conv2d_forward(shape, x, w, bias, y);
}

template <typename T>
void conv2d_backward_input(Backend backend, const Conv2dShape& shape, const T* grad_y, const T* w,
                           T* grad_x) {
  if (shape.input_size() == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (backend == Backend::kOneDnn) return onednn::conv2d_backward_input(shape, grad_y, w, grad_x);
  }
  eigen::conv2d_backward_input(shape, grad_y, w, grad_x);
}

template <typename T>
void conv2d_backward_weight(Backend backend, const Conv2dShape& shape, const T* x, const T* grad_y,
                            T* grad_w, T* grad_bias) {
  if (shape.output_size() == 0) {
    std::fill_n(grad_w, shape.weight_size(), T(0));
    if (grad_bias != nullptr) std::fill_n(grad_bias, shape.out_channels, T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (backend == Backend::kOneDnn) {
      return onednn::conv2d_backward_weight(shape, x, grad_y, grad_w, grad_bias);
    }
  }
  eigen::conv2d_backward_weight(shape, x, grad_y, grad_w);
  if (grad_bias != nullptr) {
    const std::int64_t pixels = shape.batch * shape.out_h() * shape.out_w();
    column_sums(pixels, shape.out_channels, grad_y, grad_bias);
  }
}

template void conv2d_forward(Backend, const Conv2dShape&, const float*, const float*, const float*,
                             float*);
template void conv2d_forward(Backend, const Conv2dShape&, const double*, const double*,
                             const double*, double*);
template void conv2d_backward_input(Backend, const Conv2dShape&, const float*, const float*,
                                    float*);
template void conv2d_backward_input(Backend, const Conv2dShape&, const double*, const double*,
                                    double*);
template void conv2d_backward_weight(Backend, const Conv2dShape&, const float*, const float*,
                                     float*, float*);
template void conv2d_backward_weight(Backend, const Conv2dShape&, const double*, const double*,
                                     double*, double*);

}  // namespace steelyard::kernels
