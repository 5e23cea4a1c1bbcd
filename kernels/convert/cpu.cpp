#include "kernels/convert/convert.h"

#include "kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::ConvertKernels>;
