#include "kernels/convert/convert.h"

#include "kernels/cuda/run.h"

template struct steelyard::kernels::CudaKernels<steelyard::kernels::ConvertKernels>;
