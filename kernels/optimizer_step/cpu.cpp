#include "steelyard/kernels/optimizer_step/optimizer_step.h"

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

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
