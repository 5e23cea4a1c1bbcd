// What four warps together ask of the tensor cores of Hopper, which read both operands from shared
// memory (PTX manual, "Asynchronous warpgroup level matrix instructions"): instructions that only
// code for compute capability 9.0a has.
//
// Tests replace this header by sums on the host (tests/support/cuda_emulation).
#pragma once

#include <cstdint>

#include "steelyard/kernels/cuda/tensor_core.h"

namespace steelyard::kernels::cuda {

// Whether tiles of so many rows are computed so in this compilation.
template <int kRows>
inline constexpr bool kByWarpGroups =
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    true;
#else
    false;
#endif

#define STEELYARD_REGISTERS_32                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define STEELYARD_REGISTERS_64                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define STEELYARD_SUMS_32(letter)                                                               \
  letter(sums[0]), letter(sums[1]), letter(sums[2]), letter(sums[3]), letter(sums[4]),          \
      letter(sums[5]), letter(sums[6]), letter(sums[7]), letter(sums[8]), letter(sums[9]),      \
      letter(sums[10]), letter(sums[11]), letter(sums[12]), letter(sums[13]), letter(sums[14]), \
      letter(sums[15]), letter(sums[16]), letter(sums[17]), letter(sums[18]), letter(sums[19]), \
      letter(sums[20]), letter(sums[21]), letter(sums[22]), letter(sums[23]), letter(sums[24]), \
      letter(sums[25]), letter(sums[26]), letter(sums[27]), letter(sums[28]), letter(sums[29]), \
      letter(sums[30]), letter(sums[31])
#define STEELYARD_SUMS_64(letter)                                                               \
  letter(sums[0]), letter(sums[1]), letter(sums[2]), letter(sums[3]), letter(sums[4]),          \
      letter(sums[5]), letter(sums[6]), letter(sums[7]), letter(sums[8]), letter(sums[9]),      \
      letter(sums[10]), letter(sums[11]), letter(sums[12]), letter(sums[13]), letter(sums[14]), \
      letter(sums[15]), letter(sums[16]), letter(sums[17]), letter(sums[18]), letter(sums[19]), \
      letter(sums[20]), letter(sums[21]), letter(sums[22]), letter(sums[23]), letter(sums[24]), \
      letter(sums[25]), letter(sums[26]), letter(sums[27]), letter(sums[28]), letter(sums[29]), \
      letter(sums[30]), letter(sums[31]), letter(sums[32]), letter(sums[33]), letter(sums[34]), \
      letter(sums[35]), letter(sums[36]), letter(sums[37]), letter(sums[38]), letter(sums[39]), \
      letter(sums[40]), letter(sums[41]), letter(sums[42]), letter(sums[43]), letter(sums[44]), \
      letter(sums[45]), letter(sums[46]), letter(sums[47]), letter(sums[48]), letter(sums[49]), \
      letter(sums[50]), letter(sums[51]), letter(sums[52]), letter(sums[53]), letter(sums[54]), \
      letter(sums[55]), letter(sums[56]), letter(sums[57]), letter(sums[58]), letter(sums[59]), \
      letter(sums[60]), letter(sums[61]), letter(sums[62]), letter(sums[63])

// How an operand lies in shared memory. kRowsOfTerms: a row of 128 bytes has terms of one sum, rows
// one after the other. kTermsOfRows, elements of two bytes: a row of 128 bytes has one term of 64
// sums, kPanelTerms rows make a panel, the next 64 sums have the next panel. The pieces of 16 bytes
// of a row are permuted as place_of_piece() says (kernels/cuda/product_tile.h), which is the
// hardware's "128-byte swizzle"; rows begin at multiples of 1024 bytes.
enum class Major { kRowsOfTerms, kTermsOfRows };
inline constexpr int kPanelTerms = 64;

__device__ inline std::uint64_t operand_descriptor(const unsigned char* shared) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4} << 32;
  constexpr std::uint64_t kPanel = std::uint64_t{kPanelTerms * 128 >> 4} << 16;
  return kSwizzle128 | kEightRows | kPanel | (shared_address(shared) >> 4 & 0x3FFF);
}

// sums += left right for 64 rows by kColumns (64 or 128) and 32 bytes of terms, by all 128 threads.
// Thread t has, of rows 16 * (t / 32) + t % 32 / 4 and that + 8, columns 8 * j + 2 * (t % 4) and
// the next: sums[4 * j] to sums[4 * j + 3].
template <typename Operand, Major kMajor, int kColumns, typename Sum>
__device__ inline void multiply_by_group(Sum (&sums)[kColumns / 2], const unsigned char* left,
                                         const unsigned char* right) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const std::uint64_t a = operand_descriptor(left), b = operand_descriptor(right);
#define STEELYARD_MULTIPLY(columns, registers, types, flags, letter)                         \
  asm volatile(                                                                              \
      "{.reg .pred p;\n setp.ne.b32 p, 1, 0;\n"                                              \
      "wgmma.mma_async.sync.aligned.m64n" columns types " {" STEELYARD_REGISTERS_##registers \
      "}, %" flags ";}\n"                                                                    \
      : STEELYARD_SUMS_##registers(letter)                                                   \
      : "l"(a), "l"(b))
  if constexpr (std::is_same_v<Operand, std::uint8_t> && kColumns == 128) {
    STEELYARD_MULTIPLY("128k32", 64, ".s32.u8.s8", "64, %65, p", "+r");
  } else if constexpr (std::is_same_v<Operand, std::uint8_t>) {
    STEELYARD_MULTIPLY("64k32", 32, ".s32.u8.s8", "32, %33, p", "+r");
  } else if constexpr (std::is_same_v<Operand, std::int8_t> && kColumns == 128) {
    STEELYARD_MULTIPLY("128k32", 64, ".s32.s8.s8", "64, %65, p", "+r");
  } else if constexpr (std::is_same_v<Operand, std::int8_t>) {
    STEELYARD_MULTIPLY("64k32", 32, ".s32.s8.s8", "32, %33, p", "+r");
  } else if constexpr (kMajor == Major::kRowsOfTerms && kColumns == 128) {
    STEELYARD_MULTIPLY("128k16", 64, ".f32.bf16.bf16", "64, %65, p, 1, 1, 0, 0", "+f");
  } else if constexpr (kMajor == Major::kRowsOfTerms) {
    STEELYARD_MULTIPLY("64k16", 32, ".f32.bf16.bf16", "32, %33, p, 1, 1, 0, 0", "+f");
  } else if constexpr (kColumns == 128) {
    STEELYARD_MULTIPLY("128k16", 64, ".f32.bf16.bf16", "64, %65, p, 1, 1, 1, 1", "+f");
  } else {
    STEELYARD_MULTIPLY("64k16", 32, ".f32.bf16.bf16", "32, %33, p, 1, 1, 1, 1", "+f");
  }
#undef STEELYARD_MULTIPLY
#endif
}
#undef STEELYARD_REGISTERS_32
#undef STEELYARD_REGISTERS_64
#undef STEELYARD_SUMS_32
#undef STEELYARD_SUMS_64

// Before the products that follow, which read sums that the thread wrote.
__device__ inline void begin_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// After them: they go on while the thread does.
__device__ inline void end_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Returns when all of the thread's products are done.
__device__ inline void wait_for_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}
// Lets products see what the thread wrote to shared memory; before the threads wait for each other.
__device__ inline void show_to_group_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace steelyard::kernels::cuda
