// Range reductions for observers. Order-independent, hence bit-identical for any thread count.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"
#include "kernels/layout.h"

namespace steelyard::kernels {

// lo[c], hi[c] = extremes of the finite elements of channel c (-0 counts as +0), and
// lo = +inf, hi = -inf where a channel has none; non_finite[c] (may be null) = elements skipped.
// T is float or double.
template <typename T>
void min_max(const ChannelLayout& layout, const T* x, T* lo, T* hi, std::int64_t* non_finite);

// The same on a GPU.
template <typename T>
void min_max(const CudaQueue& queue, const ChannelLayout& layout, const T* x, T* lo, T* hi,
             std::int64_t* non_finite);

}  // namespace steelyard::kernels
