// The CPU's kernels in a build with STEELYARD_LEVELS, compiled once for each of its levels of
// instructions (kernels/instructions.h).
//
// The objects of a level are linked into one, whose only global symbol is its function below
// (cmake/SteelyardLevels.cmake). So an inline function that two levels contain, be it the standard
// library's, is each level's own: a linker that merged them would bring AVX-512 to a processor
// without it.
#pragma once

#include <span>

#include "steelyard/kernels/instructions.h"

namespace steelyard::kernels {

// &run<K>, cast, for every K of the build's list (STEELYARD_CPU_KERNELS) in its order.
using LevelKernels = void (*const*)();

extern "C" {  // objcopy knows them by name
LevelKernels steelyard_kernels_v2();
LevelKernels steelyard_kernels_v3();
LevelKernels steelyard_kernels_v4();
}

struct BuiltLevel {
  InstructionLevel level;
  LevelKernels (*kernels)();
};

// The levels of this build, lowest first: CMake writes them (cpu/built_levels.cpp.in).
std::span<const BuiltLevel> built_levels();

}  // namespace steelyard::kernels
