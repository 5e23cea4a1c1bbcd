#include "steelyard/kernels/conv.h"

#include <algorithm>
#include <type_traits>

#include "steelyard/kernels/cpu/bf16_operands.h"
#include "steelyard/kernels/cpu/conv_eigen.h"
#include "steelyard/kernels/cpu/onednn_kernels.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {
namespace {

// What is told of products holds for this convolution.
CpuProducts products_of(const Conv2dShape& shape, CpuProducts products) {
  if (shape.is_depthwise()) products.precision = MatmulPrecision::kFloat32;
  return products;
}

template <typename T>
void bias_gradient(const Conv2dShape& shape, const T* grad_y, T* grad_bias) {
  if (grad_bias == nullptr) return;
  const std::int64_t pixels = shape.batch * shape.out_h() * shape.out_w();
  run(ColumnSums<T>{
      .rows = pixels, .channels = shape.out_channels, .x = grad_y, .sums = grad_bias});
}

}  // namespace

template <typename T>
void conv2d_forward(CpuProducts products, const Conv2dShape& shape, const T* x, const T* w,
                    const T* bias, T* y) {
  if (shape.output_size() == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    products = products_of(shape, products);
    if (must_round_operands(products)) {
      const auto input = rounded_to_bf16(shape.input_size(), x);
      const auto weights = rounded_to_bf16(shape.weight_size(), w);
      return conv2d_forward<float>(products.backend, shape, input.get(), weights.get(), bias, y);
    }
    if (products.backend == Backend::kOneDnn) {
      return onednn::conv2d_forward(products.precision, shape, x, w, bias, y);
    }
  }
  eigen::conv2d_forward(shape, x, w, bias, y);
}

template <typename T>
void conv2d_backward_input(CpuProducts products, const Conv2dShape& shape, const T* grad_y,
                           const T* w, T* grad_x) {
  if (shape.input_size() == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    products = products_of(shape, products);
    if (must_round_operands(products)) {
      const auto output = rounded_to_bf16(shape.output_size(), grad_y);
      const auto weights = rounded_to_bf16(shape.weight_size(), w);
      return conv2d_backward_input<float>(products.backend, shape, output.get(), weights.get(),
                                          grad_x);
    }
    if (products.backend == Backend::kOneDnn) {
      return onednn::conv2d_backward_input(products.precision, shape, grad_y, w, grad_x);
    }
  }
  eigen::conv2d_backward_input(shape, grad_y, w, grad_x);
}

template <typename T>
void conv2d_backward_weight(CpuProducts products, const Conv2dShape& shape, const T* x,
                            const T* grad_y, T* grad_w, T* grad_bias) {
  if (shape.output_size() == 0) {
    std::fill_n(grad_w, shape.weight_size(), T(0));
    if (grad_bias != nullptr) std::fill_n(grad_bias, shape.out_channels, T(0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    products = products_of(shape, products);
    if (must_round_operands(products)) {
      const auto input = rounded_to_bf16(shape.input_size(), x);
      const auto output = rounded_to_bf16(shape.output_size(), grad_y);
      conv2d_backward_weight<float>(products.backend, shape, input.get(), output.get(), grad_w,
                                    nullptr);
      return bias_gradient(shape, grad_y, grad_bias);
    }
    if (products.backend == Backend::kOneDnn) {
      const bool exact = products.precision == MatmulPrecision::kFloat32;
      onednn::conv2d_backward_weight(products.precision, shape, x, grad_y, grad_w,
                                     exact ? grad_bias : nullptr);
      if (!exact) bias_gradient(shape, grad_y, grad_bias);
      return;
    }
  }
  eigen::conv2d_backward_weight(shape, x, grad_y, grad_w);
  bias_gradient(shape, grad_y, grad_bias);
}

template void conv2d_forward(CpuProducts, const Conv2dShape&, const float*, const float*,
                             const float*, float*);
template void conv2d_forward(CpuProducts, const Conv2dShape&, const double*, const double*,
                             const double*, double*);
template void conv2d_backward_input(CpuProducts, const Conv2dShape&, const float*, const float*,
                                    float*);
template void conv2d_backward_input(CpuProducts, const Conv2dShape&, const double*, const double*,
                                    double*);
template void conv2d_backward_weight(CpuProducts, const Conv2dShape&, const float*, const float*,
                                     float*, float*);
template void conv2d_backward_weight(CpuProducts, const Conv2dShape&, const double*, const double*,
                                     double*, double*);

}  // namespace steelyard::kernels
