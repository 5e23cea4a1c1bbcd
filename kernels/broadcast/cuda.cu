#include "steelyard/kernels/broadcast/broadcast.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::BroadcastKernels>;
