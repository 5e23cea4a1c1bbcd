// Integer-counted histogram whose bin width is a power of two anchored at zero.
#pragma once

#include <cstdint>

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// A histogram per channel, kept where it lives; each widens with what it must hold. `bins` is even,
// and bin b of a channel covers
// [(b - bins/2) * 2^exponent, (b + 1 - bins/2) * 2^exponent).
struct ChannelHistograms {
  std::int64_t channels;
  std::int64_t bins;       // of each channel
  std::int64_t* counts;    // [channels, bins]
  std::int32_t* exponent;  // [channels], of the bin width
  float* lo;               // [channels], extremes of what was counted; lo > hi before the first
  float* hi;

  // Channels [first, first + count).
  ChannelHistograms part(std::int64_t first, std::int64_t count) const {
    return {count, bins, counts + first * bins, exponent + first, lo + first, hi + first};
  }
};

// One step's finite extremes (as MinMax finds them) enter those of each channel, and its bins
// merge in pairs until they hold them. Nothing finite in the step leaves a channel.
struct GrowHistograms {
  ChannelHistograms histograms;
  const float *step_lo, *step_hi;
};

// Counts every finite element in the histogram of its channel, which holds it. On a GPU at
// most 12,287 bins.
struct CountInHistograms {
  ChannelHistograms histograms;
  ChannelLayout layout;
  const float* x;
};

// to += counts, of histograms whose bins are as wide.
struct AddHistograms {
  std::int64_t n;
  const std::int64_t* counts;
  std::int64_t* to;

  STEELYARD_HOST_DEVICE void operator()(std::int64_t i) const { to[i] += counts[i]; }
};

using HistogramKernels = KernelList<GrowHistograms, CountInHistograms, AddHistograms>;

}  // namespace steelyard::kernels
