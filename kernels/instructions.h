// Which instructions the CPU's kernels use: those of the processor, chosen when the program runs.
//
// A level is a set of instructions: on x86-64 one that the psABI names (section "Micro-Architecture
// Levels"), on 64-bit Arm one by which bytes are multiplied. A build with STEELYARD_LEVELS holds
// the kernels once for each level of x86-64; on Arm only integer products differ, and every build
// has all. Every level gives the same bits, but for sums of float products on x86-64, whose order
// is the library's (docs/numerics.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace steelyard::kernels {

enum class InstructionLevel {
  kV2,          // SSE4.2
  kV3,          // AVX2 and FMA
  kV4,          // AVX-512 F, BW, CD, DQ, VL
  kArmV8,       // NEON
  kArmDotprod,  // and sums of products of four bytes (FEAT_DotProd)
  kArmI8mm      // and products of matrices of bytes (FEAT_I8MM)
};

// The psABI's name or that of the compilers' -march, as STEELYARD_INSTRUCTIONS takes it:
// "x86-64-v3", "armv8.2-a+dotprod".
std::string_view instruction_level_name(InstructionLevel level);

// The level that STEELYARD_INSTRUCTIONS holds the kernels to, and oneDNN with them; none where it
// is not set. Throws std::invalid_argument if it is no level, one that the processor lacks, or if
// the build has no levels. Read once per process.
std::optional<InstructionLevel> instruction_limit();

// The kernels of a build with levels that run: the processor's highest level, or the limit. Throws
// std::runtime_error on a processor below the lowest one.
InstructionLevel instruction_level();

// Whether kernels may use VNNI besides their level: where the processor has it and there is no
// limit. AVX-512's belongs to the highest level, AVX-VNNI to kV3 (Alder Lake and later).
bool has_vnni();
bool has_avx_vnni();

// For people and to compare two machines: "x86-64-v4", or "of the build" where there are no levels.
std::string instructions_text();

}  // namespace steelyard::kernels
