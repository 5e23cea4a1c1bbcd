// Stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/quant_cuda.h"

#include <stdexcept>

namespace steelyard::kernels {
namespace {

[[noreturn]] void absent() {
  throw std::runtime_error("[quant_plan] built without CUDA: configure with -DSTEELYARD_CUDA=ON");
}

}  // namespace

void require_cuda() { absent(); }
void quant_forward_cuda(const QuantProblem&, void*, const QuantArgs&, void*) { absent(); }
void quant_backward_cuda(const QuantProblem&, const QuantArgs&, void*) { absent(); }
void quant_parameter_gradients_cuda(const QuantProblem&, void*, const QuantArgs&, void*) {
  absent();
}
void quant_batch_cuda(const std::vector<QuantCall>&, void*) { absent(); }
std::size_t statistics_workspace_cuda(const QuantProblem&) { absent(); }
std::int64_t first_invalid_set_cuda(const QuantProblem&, const QuantArgs&) { absent(); }

}  // namespace steelyard::kernels
