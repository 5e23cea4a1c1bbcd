// The shrunken range of least squared quantization error on the values themselves.
#pragma once

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// best_lo[c], best_hi[c] = the channel's extremes lo[c], hi[c] (as MinMax finds them) times that
// factor of 1, 0.99, ... 0.01 after which its finite values, quantized by qparams_of_range(),
// differ least from themselves: least sum of squares, added in the order of
// kernels/quant_plan/quant_sums.h with 0 for what is not finite. Of equal sums the largest factor
// wins. Extremes with lo > hi are handed on. CPU and GPU give the same bits (formulas.h).
struct LeastErrorShrinkings {
  ChannelLayout layout;
  CodeRange range;
  bool symmetric;
  const float *x, *lo, *hi;
  float *best_lo, *best_hi;
};

using ShrunkenRangeKernels = KernelList<LeastErrorShrinkings>;

}  // namespace steelyard::kernels
