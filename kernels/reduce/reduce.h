// Range reductions for observers. Order-independent, hence bit-identical for any thread count.
#pragma once

#include "steelyard/kernels/layout.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// lo[c], hi[c] = extremes of the finite elements of channel c (-0 counts as +0), and
// lo = +inf, hi = -inf where a channel has none; non_finite[c] (may be null) = elements skipped.
template <typename T>
struct MinMax {
  ChannelLayout layout;
  const T* x;
  T *lo, *hi;
  std::int64_t* non_finite;
};

using ReduceKernels = ForFloats<MinMax>;

}  // namespace steelyard::kernels
