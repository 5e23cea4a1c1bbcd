// STEELYARD_VECTORIZE before a loop says that its iterations do not depend on each other except
// through element-exact aliasing (y == x), so that compilers need no overlap check. Unlike
// `omp simd` it keeps GCC 12 from turning per-iteration structs into arrays in memory.
#pragma once

#if defined(__clang__)
#define STEELYARD_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define STEELYARD_VECTORIZE _Pragma("GCC ivdep")
#endif
