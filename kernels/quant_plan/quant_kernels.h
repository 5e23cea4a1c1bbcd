// The kernels of QuantPlan (kernels/quant_plan/quant_plan.h) and kernels/fake_quantize, which
// checked problem and arguments.
#pragma once

#include <span>

#include "steelyard/kernels/quant_plan/quant_problem.h"
#include "steelyard/kernels/run.h"

namespace steelyard::kernels {

// With given statistics.
struct QuantForward {
  QuantProblem problem;
  QuantArgs args;
};
// With others; a GPU's workspace is statistics_workspace(problem) bytes.
struct QuantWithStatistics {
  QuantProblem problem;
  QuantArgs args;
  void* workspace;
};
// Straight-through gradients, from the values of the forward or from its mask.
struct QuantBackward {
  QuantProblem problem;
  QuantArgs args;
};
// And those of scale and zero point; the workspace is parameter_gradient_workspace(problem) bytes.
struct QuantParameterGradients {
  QuantProblem problem;
  QuantArgs args;
  void* workspace;
};
// Many QuantForward together.
struct QuantBatch {
  std::span<const QuantForward> calls;
};

// Two extremes and a count per set.
inline std::size_t statistics_workspace(const QuantProblem& problem) {
  const std::size_t extreme = problem.value_type == ValueType::kF64 ? 8 : 4;
  return static_cast<std::size_t>(problem.map.sets) * (8 + 2 * extreme);
}

using QuantKernels = KernelList<QuantForward, QuantWithStatistics, QuantBackward,
                                QuantParameterGradients, QuantBatch>;

}  // namespace steelyard::kernels
