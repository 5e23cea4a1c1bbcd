#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::FixedCodesKernels>;
