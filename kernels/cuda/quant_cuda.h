// The GPU's quantization kernels behind QuantPlan; problem and arguments were checked there. A
// build without CUDA has the same functions in kernels/quant_cuda_absent.cpp, which throw
// std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "steelyard/kernels/quant_problem.h"

namespace steelyard::kernels {

// Throws std::runtime_error where the build has no CUDA.
void require_cuda();

// Elements are handled eight at a time; each function works on `stream` and does not wait.
void quant_forward_cuda(const QuantProblem& problem, void* workspace, const QuantArgs& args,
                        void* stream);
void quant_forward_with_statistics_cuda(const QuantProblem& problem, void* workspace,
                                        const QuantArgs& args, void* stream);
void quant_backward_cuda(const QuantProblem& problem, const QuantArgs& args, void* stream);
void quant_parameter_gradients_cuda(const QuantProblem& problem, void* workspace,
                                    const QuantArgs& args, void* stream);
void quant_batch_cuda(const std::vector<QuantCall>& calls, void* stream);

// Bytes of workspace that a forward call with statistics needs: two extremes and a count per set.
std::size_t statistics_workspace_cuda(const QuantProblem& problem);

// first_invalid_set() of scales and zero points on the device, or -1 where a moving average has not
// begun; waits for the default stream.
std::int64_t first_invalid_set_cuda(const QuantProblem& problem, const QuantArgs& args);

}  // namespace steelyard::kernels
