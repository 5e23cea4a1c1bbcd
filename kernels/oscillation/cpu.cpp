#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/oscillation/oscillation.h"

namespace steelyard::kernels {

static void compute(const CountOscillations& k) {
  k.counts[0] = k.counts[1] = 0;
  for (std::int64_t i = 0; i < k.n; ++i) {
    k.counts[0] += k.state.frozen[i];
    k.counts[1] += k.state.frozen[i] == 0 && k.state.frequency[i] > k.frequency;
  }
}

template struct CpuKernels<OscillationKernels>;

}  // namespace steelyard::kernels
