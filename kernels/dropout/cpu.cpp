#include "steelyard/kernels/dropout/dropout.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::DropoutKernels>;
