// QuantForward of f32 values alone: what a build has that only runs exported models.
#include "steelyard/kernels/cpu/run.h"
#include "steelyard/kernels/quant_plan/cpu_forward.h"
#include "steelyard/kernels/quant_plan/quant_kernels.h"

namespace steelyard::kernels {

static void compute(const QuantForward& k) { run_forward<float>(k); }

template struct CpuKernels<KernelList<QuantForward>>;

}  // namespace steelyard::kernels
