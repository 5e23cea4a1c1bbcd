// The CPU's quantization kernels behind QuantPlan; problem and arguments were checked there.
#pragma once

#include <cstddef>
#include <vector>

#include "steelyard/kernels/quant_problem.h"

namespace steelyard::kernels {

void quant_forward_cpu(const QuantProblem& problem, const QuantArgs& args);
void quant_forward_with_statistics_cpu(const QuantProblem& problem, const QuantArgs& args);
void quant_backward_cpu(const QuantProblem& problem, const QuantArgs& args);
// workspace: parameter_gradient_workspace(problem) bytes.
void quant_parameter_gradients_cpu(const QuantProblem& problem, void* workspace,
                                   const QuantArgs& args);

// Forward calls with given statistics, all blocks of all tensors shared among the threads.
void quant_batch_cpu(const std::vector<QuantCall>& calls);

}  // namespace steelyard::kernels
