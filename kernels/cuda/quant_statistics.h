// Forward calls that choose their own scale (kernels/cuda/quant_statistics.cu).
#pragma once

#include "steelyard/kernels/cuda/launch.h"
#include "steelyard/kernels/quant_problem.h"

namespace steelyard::kernels::cuda {

void forward_with_statistics(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                             cudaStream_t stream);

}  // namespace steelyard::kernels::cuda
