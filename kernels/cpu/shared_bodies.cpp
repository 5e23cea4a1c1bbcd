#include "steelyard/kernels/shared_bodies.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::SharedArithmetic>;
template struct steelyard::kernels::CpuKernels<steelyard::kernels::SharedBookkeeping>;
template struct steelyard::kernels::CpuKernels<steelyard::kernels::SharedRows>;
