// Values of one type as another, on a GPU.
#pragma once

#include "kernels/cuda_queue.h"
#include "kernels/value_type.h"

namespace steelyard::kernels {

// y = x: from and to float, double and std::int32_t, Half and BFloat16 from and to floating types.
// Rounds once, to the nearest.
template <typename From, typename To>
void convert(const CudaQueue& queue, std::int64_t n, const From* x, To* y);

}  // namespace steelyard::kernels
