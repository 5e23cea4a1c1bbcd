// QuantPlan's part of cuda_absent.cpp: a program may replace it alone.
#include "steelyard/kernels/cuda/quant_cuda.h"

#include "steelyard/kernels/cuda_absent.h"

namespace steelyard::kernels {

void require_cuda() { cuda_is_absent(); }
void quant_forward_cuda(const QuantProblem&, void*, const QuantArgs&, void*) { cuda_is_absent(); }
void quant_backward_cuda(const QuantProblem&, const QuantArgs&, void*) { cuda_is_absent(); }
void quant_parameter_gradients_cuda(const QuantProblem&, void*, const QuantArgs&, void*) {
  cuda_is_absent();
}
void quant_batch_cuda(const std::vector<QuantCall>&, void*) { cuda_is_absent(); }
std::size_t statistics_workspace_cuda(const QuantProblem&) { cuda_is_absent(); }
std::int64_t first_invalid_set_cuda(const QuantProblem&, const QuantArgs&) { cuda_is_absent(); }

}  // namespace steelyard::kernels
