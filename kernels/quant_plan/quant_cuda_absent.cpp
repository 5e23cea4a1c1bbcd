// QuantPlan's part of cuda_absent.cpp: a program may replace it alone.
#include "steelyard/kernels/cuda_absent.h"
#include "steelyard/kernels/quant_plan/cuda.h"

namespace steelyard::kernels {

void require_cuda() { cuda_is_absent(); }
std::int64_t first_invalid_set_cuda(const QuantProblem&, const QuantArgs&) { cuda_is_absent(); }

}  // namespace steelyard::kernels
