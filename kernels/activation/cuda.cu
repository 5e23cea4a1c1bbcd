#include "steelyard/kernels/activation/activation.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::ActivationKernels>;
