// What QuantPlan asks of a GPU in addition to its kernels. A build without CUDA has the same
// functions in kernels/quant_plan/quant_cuda_absent.cpp, which throw std::runtime_error.
#pragma once

#include <cstdint>

#include "steelyard/kernels/quant_plan/quant_problem.h"

namespace steelyard::kernels {

// Throws std::runtime_error where the build has no CUDA.
void require_cuda();

// first_invalid_set() of scales and zero points on the device, or -1 where a moving average has not
// begun; waits for the default stream.
std::int64_t first_invalid_set_cuda(const QuantProblem& problem, const QuantArgs& args);

}  // namespace steelyard::kernels
