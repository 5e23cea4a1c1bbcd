// The CPU's kernels in a build with STEELYARD_LEVELS: all that run() and QuantPlan need, compiled
// once for each level of instructions (kernels/instructions.h).
//
// The objects of a level are linked into one, whose only global symbol is its function below
// (cmake/SteelyardLevels.cmake). So an inline function that two levels contain, be it the standard
// library's, is each level's own: a linker that merged them would bring AVX-512 to a processor
// without it.
#pragma once

#include "steelyard/kernels/cpu/quant_cpu.h"

namespace steelyard::kernels {

struct LevelKernels {
  void (*const* run)();  // &run<K>, cast, for every K of AllCpuKernels in its order
  decltype(&quant_forward_cpu) quant_forward;
  decltype(&quant_forward_with_statistics_cpu) quant_forward_with_statistics;
  decltype(&quant_backward_cpu) quant_backward;
  decltype(&quant_parameter_gradients_cpu) quant_parameter_gradients;
  decltype(&quant_batch_cpu) quant_batch;
};

extern "C" {  // objcopy knows them by name
LevelKernels steelyard_kernels_v2();
LevelKernels steelyard_kernels_v3();
LevelKernels steelyard_kernels_v4();
}

}  // namespace steelyard::kernels
