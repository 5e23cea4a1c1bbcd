#include "steelyard/kernels/losses/losses.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::LossKernels>;
