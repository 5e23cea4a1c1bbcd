// The shrunken range of least squared quantization error on the values themselves.
#pragma once

#include <cstdint>

#include "kernels/affine.h"
#include "kernels/cuda_queue.h"
#include "kernels/layout.h"

namespace steelyard::kernels {

// best_lo[c], best_hi[c] = the channel's extremes lo[c], hi[c] (as min_max() finds them) times that
// factor of 1, 0.99, ... 0.01 after which its finite values, quantized by qparams_of_range(),
// differ least from themselves: least sum of squares, added in the order of kernels/quant_sums.h
// with 0 for what is not finite. Of equal sums the largest factor wins. Extremes with lo > hi are
// handed on. CPU and GPU give the same bits (kernels/shrunken_range_rules.h).
void least_error_shrinkings(const ChannelLayout& layout, CodeRange range, bool symmetric,
                            const float* x, const float* lo, const float* hi, float* best_lo,
                            float* best_hi);

// The same on a GPU.
void least_error_shrinkings(const CudaQueue& queue, const ChannelLayout& layout, CodeRange range,
                            bool symmetric, const float* x, const float* lo, const float* hi,
                            float* best_lo, float* best_hi);

}  // namespace steelyard::kernels
