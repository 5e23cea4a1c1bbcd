// The Eigen convolution: reference and fallback of the dispatchers in conv.cpp.
#pragma once

#include "steelyard/kernels/conv.h"

namespace steelyard::kernels::eigen {

// As in kernels/conv.h, for non-empty shapes. T is float or double.
template <typename T>
void conv2d_forward(const Conv2dShape& shape, const T* x, const T* w, const T* bias, T* y);
template <typename T>
void conv2d_backward_input(const Conv2dShape& shape, const T* grad_y, const T* w, T* grad_x);
template <typename T>
void conv2d_backward_weight(const Conv2dShape& shape, const T* x, const T* grad_y, T* grad_w);

}  // namespace steelyard::kernels::eigen
