#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/wide_codes/wide_codes.h"

namespace steelyard::kernels {

template struct CpuKernels<WideCodesKernels>;

}  // namespace steelyard::kernels
