// Functions that run on the host and on a GPU.
#pragma once

#ifdef __CUDACC__
#define STEELYARD_HOST_DEVICE __host__ __device__
#else
#define STEELYARD_HOST_DEVICE
#endif

// Before a loop that need not be fast on a GPU: keeps it rolled up there.
#ifdef __CUDA_ARCH__
#define STEELYARD_ROLLED _Pragma("unroll 1")
#else
#define STEELYARD_ROLLED
#endif
