#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/quantizer_state/quantizer_state.h"
#include "steelyard/kernels/reduce/reduce.h"

namespace steelyard::kernels {

extern template void run(const MinMax<float>&);  // emitted in another family's file

static void compute(const ObserveValues& kernel) {
  float lo, hi;
  std::int64_t skipped;
  run(MinMax<float>{ChannelLayout::per_tensor(kernel.n), kernel.x, &lo, &hi, &skipped});
  *kernel.to.non_finite += skipped;
  follow_extremes(kernel.rule, kernel.to, lo, hi);
}

template struct CpuKernels<QuantizerStateKernels>;

}  // namespace steelyard::kernels
