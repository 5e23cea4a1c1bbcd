// What a warp asks of tensor cores and of copies into shared memory: the instructions of compute
// capability 8.0, a GPU that has them being asked for by has_tensor_cores().
//
// Tests replace this header by sums on the host (tests/support/cuda_emulation). Fragments are those
// of mma.sync (PTX manual, "Matrix fragments"): of lane l, rows l / 4 and l / 4 + 8, the two
// columns from 2 * (l % 4) on.
#pragma once

#include <cstdint>

#include "steelyard/kernels/cuda/launch.h"
#include "steelyard/kernels/value_type.h"

namespace steelyard::kernels::cuda {

// Whether the current device has them.
inline bool has_tensor_cores() {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice", __FILE__, __LINE__);
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute", __FILE__, __LINE__);
  return major >= 8;
}

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Four matrices of 8 rows of 16 bytes: lane l names row l % 8 of matrix l / 8, aligned to 16 bytes,
// and gets bytes 4 * (l % 4) to 4 * (l % 4) + 3 of row l / 4 of each.
__device__ inline void load_matrices(const void* row, std::uint32_t (&words)[4]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}
// Loads the transposes of those matrices, elements having two bytes.
__device__ inline void load_transposed(const void* row, std::uint32_t (&words)[4]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
#endif
}

// sums += a b: a has 16 rows of 32 bytes, b 8 columns of them. Codes are multiplied as integers of
// their type by int8_t and added in int32; bfloat16 is multiplied by bfloat16 and added in float.
template <typename A>
struct TensorCore;
template <>
struct TensorCore<std::uint8_t> {
  using Weight = std::int8_t;
  using Sum = std::int32_t;
  __device__ static void multiply_add(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};
template <>
struct TensorCore<std::int8_t> {
  using Weight = std::int8_t;
  using Sum = std::int32_t;
  __device__ static void multiply_add(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};
template <>
struct TensorCore<BFloat16> {
  using Weight = BFloat16;
  using Sum = float;
  __device__ static void multiply_add(Sum (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                      std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};

// Starts a copy of 8 or 16 bytes, aligned to as many, from global to shared memory.
template <int kBytes>
__device__ inline void copy_later(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
                 "l"(global)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)),
                 "l"(global), "n"(kBytes)
                 : "memory");
  }
#endif
}
// Ends a group of the thread's copies.
__device__ inline void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Returns when all of the thread's groups but the last kLeft are there, for this thread.
template <int kLeft>
__device__ inline void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

}  // namespace steelyard::kernels::cuda
