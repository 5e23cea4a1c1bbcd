// Exact integer products of quantized codes; kernels/requantize has what follows them.
//
// Activation codes are uint8_t or int8_t with one zero point; weight codes are int8_t with zero
// point 0. Accumulators are int32 and exact whatever the backend and device (NUMERICS: oneDNN int8
// only with VNNI, s32 output, no scales, bias or zero points inside). Scales and zero points are
// pointers to one value, where the codes are.
#pragma once

#include <cstdint>

#include "steelyard/kernels/affine.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/kernels/conv.h"
#include "steelyard/kernels/cuda_queue.h"

namespace steelyard::kernels {

// The largest |(x - zero_point) * w| of codes and zero points within these ranges.
constexpr std::int64_t largest_product(CodeRange x, CodeRange w) {
  return std::int64_t{x.qmax - x.qmin} * (-w.qmin > w.qmax ? -w.qmin : w.qmax);
}
// The same of weights that may have zero points within their range, too.
constexpr std::int64_t largest_product(CodeRange x, CodeRange w, bool symmetric_weights) {
  return symmetric_weights ? largest_product(x, w)
                           : std::int64_t{x.qmax - x.qmin} * (w.qmax - w.qmin);
}
// That of any codes of 8 bits.
inline constexpr std::int64_t kLargestProduct = largest_product({0, 255}, {-128, 127});

// acc[m, n] = sum_k (x[m, k] - x_zero_point) * w[n, k]. No product is larger than `largest`: small
// ones let more of them be added at a time. Throws std::invalid_argument when k of the largest
// could overflow int32.
template <typename Code>
void integer_matmul(Backend backend, std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// acc[N, OH, OW, O] of x[N, H, W, C] and w[O, C/groups, KH, KW]; padding counts as real zero.
template <typename Code>
void integer_conv2d(Backend backend, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// The same with default_backend().
template <typename Code>
void integer_matmul(std::int64_t m, std::int64_t n, std::int64_t k, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);
template <typename Code>
void integer_conv2d(const Conv2dShape& shape, const Code* x, const std::int32_t* x_zero_point,
                    const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

// The same on a GPU.
template <typename Code>
void integer_matmul(const CudaQueue& queue, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Code* x, const std::int32_t* x_zero_point, const std::int8_t* w,
                    std::int32_t* acc, std::int64_t largest = kLargestProduct);
template <typename Code>
void integer_conv2d(const CudaQueue& queue, const Conv2dShape& shape, const Code* x,
                    const std::int32_t* x_zero_point, const std::int8_t* w, std::int32_t* acc,
                    std::int64_t largest = kLargestProduct);

}  // namespace steelyard::kernels
