#include "steelyard/kernels/optimizer_step/optimizer_step.h"

#include <cmath>

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

void adamw_factors(const AdamWStep& step, double lr, double weight_decay, std::int64_t count,
                   double* factors) {
  const auto exponent = static_cast<double>(count);
  factors[0] = 1 - lr * weight_decay;
  factors[1] = lr / (1 - std::pow(step.beta1, exponent));
  factors[2] = std::sqrt(1 - std::pow(step.beta2, exponent));
}

template <typename T>
void compute(const SumOfSquares<T>& kernel) {
  *kernel.sum = 0;
  for (const ValueTensor<T>& t : kernel.tensors) {
    *kernel.sum += row_sums(RowChunks(t.size, 1), [x = t.values](std::int64_t i, std::int64_t) {
      return double(x[i]) * double(x[i]);
    })[0];
  }
}

template struct CpuKernels<OptimizerStepKernels>;

}  // namespace steelyard::kernels
