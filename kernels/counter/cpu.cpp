#include "steelyard/kernels/counter/counter.h"

#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

static void compute(const AddCounts& kernel) {
  for (std::int64_t i = 0; i < kernel.n; ++i) *kernel.total += kernel.counts[i];
}

template struct CpuKernels<CounterKernels>;

}  // namespace steelyard::kernels
