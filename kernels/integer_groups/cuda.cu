#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"

namespace steelyard::kernels {

template struct CudaKernels<IntegerGroupsKernels>;

}  // namespace steelyard::kernels
