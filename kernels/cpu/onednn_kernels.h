// The oneDNN float kernels behind the dispatchers; onednn_absent/ holds the same symbols, throwing.
#pragma once

#include "steelyard/kernels/conv.h"
#include "steelyard/kernels/matmul.h"

namespace steelyard::kernels::onednn {

bool built();

// True where oneDNN rounds operands to bf16 and multiplies them by one instruction.
bool has_bf16();

// As in kernels/matmul.h and kernels/conv.h, for non-empty shapes; kBf16 only where has_bf16().
void matmul(MatmulPrecision precision, const MatmulShape& shape, const float* a, const float* b,
            float* c);
void conv2d_forward(MatmulPrecision precision, const Conv2dShape& shape, const float* x,
                    const float* w, const float* bias, float* y);
void conv2d_backward_input(MatmulPrecision precision, const Conv2dShape& shape, const float* grad_y,
                           const float* w, float* grad_x);
void conv2d_backward_weight(MatmulPrecision precision, const Conv2dShape& shape, const float* x,
                            const float* grad_y, float* grad_w, float* grad_bias);

}  // namespace steelyard::kernels::onednn
