// The range that holds all but the outermost values of a channel.
//
// Symmetric: [-t, t] with t the percentile of |x|. Else from the percentile 100 - p to the
// percentile p of x. Between two values a percentile is interpolated, as by numpy.percentile. A
// range of [0, 0] would clip every value that is not 0: the extremes are taken instead. lo > hi
// where nothing finite was seen. CPU and GPU give the same bits (formulas.h).
#pragma once

#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// lo[c], hi[c] of channels' histograms, whose values are taken to lie evenly within their bin; the
// number of bins is a power of two. Where *steps is 1, first_lo and first_hi are handed on instead.
struct PercentileRanges {
  ChannelHistograms histograms;
  double percentile;
  bool symmetric;
  const std::int64_t *steps;
  const double *first_lo, *first_hi;
  double *lo, *hi;
};

// One step's values are seen, whose finite extremes per channel are x_lo and x_hi (as MinMax
// finds them): *steps grows by 1 unless nothing is finite, and where it thereby becomes 1, lo[c]
// and hi[c] are written, exact for the finite values of the channel.
struct PercentilesOfFirstStep {
  ChannelLayout layout;
  double percentile;
  bool symmetric;
  const float *x, *x_lo, *x_hi;
  std::int64_t *steps;
  double *lo, *hi;
};

using PercentileKernels = KernelList<PercentileRanges, PercentilesOfFirstStep>;

}  // namespace steelyard::kernels
