// Which instructions the CPU's kernels use: those of the processor, chosen when the program runs.
//
// A level is a set of instructions that the x86-64 psABI names (section "Micro-Architecture
// Levels"). A build with STEELYARD_LEVELS holds the kernels once for each; every level gives the
// same bits, but for sums of float products, whose order is the library's (docs/numerics.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace steelyard::kernels {

enum class InstructionLevel {
  kV2,
  kV3,
  kV4
};  // with SSE4.2; AVX2 and FMA; AVX-512 F, BW, CD, DQ, VL

// The psABI's name, as STEELYARD_INSTRUCTIONS takes it: "x86-64-v3".
std::string_view instruction_level_name(InstructionLevel level);

// The level that STEELYARD_INSTRUCTIONS holds the kernels to, and oneDNN with them; none where it
// is not set. Throws std::invalid_argument if it is no level, one that the processor lacks, or if
// the build has one set of kernels. Read once per process.
std::optional<InstructionLevel> instruction_limit();

// The kernels of a build with levels that run: the processor's highest level, or the limit. Throws
// std::runtime_error on a processor below x86-64-v2.
InstructionLevel instruction_level();

// Whether kernels may use AVX-512's VNNI besides their level, the highest one: where the processor
// has it and there is no limit.
bool has_vnni();

// For people and to compare two machines: "x86-64-v4", or "of the build" where there are no levels.
std::string instructions_text();

}  // namespace steelyard::kernels
