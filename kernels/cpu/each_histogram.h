// A range for each channel's histogram.
#pragma once

#include <cmath>

#include "steelyard/kernels/cpu/parallel.h"
#include "steelyard/kernels/histogram/histogram.h"
#include "steelyard/kernels/quant_plan/range_choice.h"

namespace steelyard::kernels {

// Writes range_of(channel) for each channel that holds values.
template <typename F>
void for_each_channel(const ChannelHistograms& h, double* lo, double* hi, const F& range_of) {
  parallel_for(h.channels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const RangeEnds ends =
          h.lo[c] <= h.hi[c] ? range_of(h.part(c, 1)) : RangeEnds{INFINITY, -INFINITY};
      lo[c] = ends.lo;
      hi[c] = ends.hi;
    }
  });
}

}  // namespace steelyard::kernels
