#include "kernels/dropout/dropout.h"

#include "kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::DropoutKernels>;
