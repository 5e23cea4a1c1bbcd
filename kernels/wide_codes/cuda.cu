#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::kernels {

template struct CudaKernels<WideCodesKernels>;

}  // namespace steelyard::kernels
