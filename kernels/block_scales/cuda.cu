#include "steelyard/kernels/block_scales/block_scales.h"
#include "steelyard/kernels/cuda/run.h"

namespace steelyard::kernels {

template struct CudaKernels<BlockScalesKernels>;

}  // namespace steelyard::kernels
