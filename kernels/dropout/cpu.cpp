#include "kernels/dropout/dropout.h"

#include "kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::DropoutKernels>;
