#include "kernels/activation/activation.h"

#include "kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::ActivationKernels>;
