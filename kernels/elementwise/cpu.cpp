#include <algorithm>
#include <cstddef>

#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/elementwise/elementwise.h"

namespace steelyard::kernels {

static void compute(const SwapBytes& kernel) {
  auto* first = static_cast<std::byte*>(kernel.a);
  std::swap_ranges(first, first + kernel.bytes, static_cast<std::byte*>(kernel.b));
}

template struct CpuKernels<ElementwiseKernels>;

}  // namespace steelyard::kernels
