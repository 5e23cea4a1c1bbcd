#include "steelyard/kernels/shared_bodies.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::SharedArithmetic>;
template struct steelyard::kernels::CudaKernels<steelyard::kernels::SharedBookkeeping>;
template struct steelyard::kernels::CudaKernels<steelyard::kernels::SharedRows>;
