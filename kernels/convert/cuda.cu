#include "steelyard/kernels/convert/convert.h"

#include "steelyard/kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::ConvertKernels>;
