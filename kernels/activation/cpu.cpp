#include "steelyard/kernels/activation/activation.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::ActivationKernels>;
