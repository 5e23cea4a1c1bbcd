#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/integer_groups/integer_groups.h"

namespace steelyard::kernels {

template struct CpuKernels<IntegerGroupsKernels>;

}  // namespace steelyard::kernels
