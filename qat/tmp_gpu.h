#pragma once
#include "framework/ops/dropout.h"
#include "kernels/conv.h"
#include "kernels/cuda_queue.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/pool.h"
namespace steelyard {
inline Tensor dropout_mask(std::int64_t n, double p, Rng& rng, Device) { return dropout_mask(n, p, rng); }
namespace kernels {
#define Q const CudaQueue&
#define I std::int64_t
template <typename T> void matmul(const MatmulShape& s, const T* a, const T* b, T* c) { matmul(default_backend(), s, a, b, c); }
template <typename T> void matmul(Q, const MatmulShape&, const T*, const T*, T*) { throw 1; }
template <typename T> void column_sums(Q, I, I, const T*, T*) { throw 1; }
template <typename T> void conv2d_backward_input(const Conv2dShape& s, const T* a, const T* b, T* c) { conv2d_backward_input(default_backend(), s, a, b, c); }
template <typename T> void conv2d_backward_input(Q, const Conv2dShape&, const T*, const T*, T*) { throw 1; }
template <typename T> void conv2d_backward_weight(const Conv2dShape& s, const T* a, const T* b, T* c, T* d) { conv2d_backward_weight(default_backend(), s, a, b, c, d); }
template <typename T> void conv2d_backward_weight(Q, const Conv2dShape&, const T*, const T*, T*, T*) { throw 1; }
template <typename T> void max_pool2d_forward(Q, const Pool2dShape&, const T*, T*, std::uint16_t*) { throw 1; }
template <typename T> void max_pool2d_backward(Q, const Pool2dShape&, const T*, const std::uint16_t*, T*) { throw 1; }
template <typename T> void avg_pool2d_backward(Q, const Pool2dShape&, bool, const T*, T*) { throw 1; }
template <typename T> void nhwc_to_nchw(Q, I, I, I, const T*, T*) { throw 1; }
template <typename T> void nchw_to_nhwc(Q, I, I, I, const T*, T*) { throw 1; }
template <typename T> void batch_moments(Q, I, I, const T*, T*, T*) { throw 1; }
template <typename T> void batch_norm_forward(Q, I, I, const T*, const T*, const T*, const T*, const T*, T*) { throw 1; }
template <typename T> void batch_norm_backward_training(Q, I, I, const T*, const T*, const T*, const T*, const T*, T*, T*, T*) { throw 1; }
template <typename T> void batch_norm_backward_frozen(Q, I, I, const T*, const T*, const T*, const T*, const T*, T*, T*, T*) { throw 1; }
#undef Q
#undef I
}
}
