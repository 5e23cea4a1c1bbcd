#include "steelyard/kernels/broadcast/broadcast.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::BroadcastKernels>;
