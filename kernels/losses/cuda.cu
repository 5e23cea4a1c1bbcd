#include "steelyard/kernels/losses/losses.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::LossKernels>;
