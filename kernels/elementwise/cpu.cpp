#include <algorithm>
#include <cstddef>

#include "kernels/cpu/run.h"
#include "kernels/elementwise/elementwise.h"

namespace steelyard::kernels {

static void compute(const SwapBytes& kernel) {
  auto* first = static_cast<std::byte*>(kernel.a);
  std::swap_ranges(first, first + kernel.bytes, static_cast<std::byte*>(kernel.b));
}

template struct CpuKernels<ElementwiseKernels>;

}  // namespace steelyard::kernels
