// Work on samples that several threads share.
#pragma once

#include <cstdint>
#include <functional>

namespace steelyard {

// Runs work(i) for every i of [0, count), on as many threads as the CPU kernels have; not on
// OpenMP's, which belong to training. Where some of it throws, no more is begun, and the exception
// of the smallest i that threw is rethrown.
void in_parallel(std::int64_t count, const std::function<void(std::int64_t)>& work);

}  // namespace steelyard
