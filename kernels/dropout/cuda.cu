#include "steelyard/kernels/dropout/dropout.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::DropoutKernels>;
