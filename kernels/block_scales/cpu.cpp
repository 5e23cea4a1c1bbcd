#include "steelyard/kernels/block_scales/block_scales.h"
#include "steelyard/kernels/cpu/run.h"

namespace steelyard::kernels {

template struct CpuKernels<BlockScalesKernels>;

}  // namespace steelyard::kernels
