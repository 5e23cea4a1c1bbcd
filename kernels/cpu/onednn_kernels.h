// The oneDNN float kernels behind the dispatchers; onednn_absent/ holds the same symbols, throwing.
#pragma once

#include "kernels/conv.h"
#include "kernels/matmul.h"

namespace steelyard::kernels::onednn {

bool built();

void matmul(const MatmulShape& shape, const float* a, const float* b, float* c);

// As in kernels/conv.h, for non-empty shapes.
void conv2d_forward(const Conv2dShape& shape, const float* x, const float* w, const float* bias,
                    float* y);
void conv2d_backward_input(const Conv2dShape& shape, const float* grad_y, const float* w,
                           float* grad_x);
void conv2d_backward_weight(const Conv2dShape& shape, const float* x, const float* grad_y,
                            float* grad_w, float* grad_bias);

}  // namespace steelyard::kernels::onednn
