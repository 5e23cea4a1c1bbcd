// Counters that grow where they live.
#pragma once

#include <cstdint>

#include "kernels/cuda_queue.h"

namespace steelyard::kernels {

// *total += the sum of n counts, of which there are no more than channels of a tensor.
void add_counts(std::int64_t n, const std::int64_t* counts, std::int64_t* total);

// *counter += 1.
void count_one(std::int64_t* counter);

// The same on a GPU.
void count_one(const CudaQueue& queue, std::int64_t* counter);
void add_counts(const CudaQueue& queue, std::int64_t n, const std::int64_t* counts,
                std::int64_t* total);

}  // namespace steelyard::kernels
