// From the histogram of a channel to the range that its quantizer needs.
//
// Both kernels write lo[c], hi[c], with lo > hi for a channel whose histogram is empty, the same
// bits on CPU and GPU. The number of bins is a power of two.
#pragma once

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// The clipping of least estimated squared error among those at bin edges within the extremes; both
// ends alike where symmetric. The error is taken from the centres of the bins: outside, the squared
// distance from the clipped end; within half a step of 0, which is always exact, the squared value;
// elsewhere scale^2 / 12 (clipping_error.h).
struct LeastErrorRanges {
  ChannelHistograms histograms;
  CodeRange range;
  bool symmetric;
  double *lo, *hi;
};

// The clipping after which the quantized distribution diverges least from the original one
// (clipping_divergence.h); the extremes where fewer bins than codes hold the values.
struct LeastDivergenceRanges {
  ChannelHistograms histograms;
  CodeRange range;
  bool symmetric;
  double *lo, *hi;
};

using HistogramRangesKernels = KernelList<LeastErrorRanges, LeastDivergenceRanges>;

}  // namespace steelyard::kernels
