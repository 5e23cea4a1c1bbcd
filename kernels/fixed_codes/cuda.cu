#include "steelyard/kernels/cuda/run.h"
#include "steelyard/kernels/fixed_codes/fixed_codes.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::FixedCodesKernels>;
