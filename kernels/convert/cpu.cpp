#include "steelyard/kernels/convert/convert.h"

#include "steelyard/kernels/cpu/run.h"

template struct steelyard::kernels::CpuKernels<steelyard::kernels::ConvertKernels>;
