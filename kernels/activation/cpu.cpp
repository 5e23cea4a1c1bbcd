#include "kernels/activation/activation.h"

#include "kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::ActivationKernels>;
