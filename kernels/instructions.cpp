#include "steelyard/kernels/instructions.h"

#include <cstdlib>
#include <stdexcept>
#include <vector>

#if defined(STEELYARD_LEVELS)
#include "steelyard/kernels/cpu/levels.h"
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace steelyard::kernels {
namespace {

#if defined(STEELYARD_LEVELS)
bool processor_has(InstructionLevel level) {
  __builtin_cpu_init();
  switch (level) {
    case InstructionLevel::kV2:
      return __builtin_cpu_supports("x86-64-v2");
    case InstructionLevel::kV3:
      return __builtin_cpu_supports("x86-64-v3");
    default:
      return __builtin_cpu_supports("x86-64-v4");
  }
}

std::vector<InstructionLevel> levels_of_build() {
  std::vector<InstructionLevel> levels;
  for (const BuiltLevel& built : built_levels()) levels.push_back(built.level);
  return levels;
}
#elif defined(__aarch64__)
bool processor_has(InstructionLevel level) {
#if defined(__linux__)
  const bool dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  switch (level) {
    case InstructionLevel::kArmDotprod:
      return dotprod;
    case InstructionLevel::kArmI8mm:
      return dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
    default:
      return true;
  }
#else
  return level == InstructionLevel::kArmV8;
#endif
}

std::vector<InstructionLevel> levels_of_build() {
  return {InstructionLevel::kArmV8, InstructionLevel::kArmDotprod, InstructionLevel::kArmI8mm};
}
#else
bool processor_has(InstructionLevel) { return false; }
std::vector<InstructionLevel> levels_of_build() { return {}; }
#endif

// The levels of the build that the processor has and the operating system lets programs use, lowest
// first. None where the build has none.
std::vector<InstructionLevel> usable_levels() {
  std::vector<InstructionLevel> levels;
  for (const InstructionLevel level : levels_of_build()) {
    if (processor_has(level)) levels.push_back(level);
  }
  if (levels.empty() && !levels_of_build().empty()) {
    throw std::runtime_error("[instructions] expected a processor with the instructions of " +
                             std::string(instruction_level_name(levels_of_build().front())) +
                             ", got an older one");
  }
  return levels;
}

InstructionLevel level_of_name(const std::string& name) {
  const std::vector<InstructionLevel> levels = usable_levels();
  if (levels.empty()) {
    throw std::invalid_argument(
        "[instructions] expected no STEELYARD_INSTRUCTIONS in a build whose kernels were compiled "
        "once, got '" +
        name + "'");
  }
  std::string expected;
  for (const InstructionLevel level : levels) {
    if (instruction_level_name(level) == name) return level;
    expected += (expected.empty() ? "" : " or ") + std::string(instruction_level_name(level));
  }
  throw std::invalid_argument("[instructions] expected STEELYARD_INSTRUCTIONS to be " + expected +
                              " in this build and on this processor, got '" + name + "'" +
                              (levels.size() > 1 ? ""
                                                 : ": a build with -DSTEELYARD_LEVELS=ON has "
                                                   "all levels"));
}

std::optional<InstructionLevel> read_limit() {
  const char* name = std::getenv("STEELYARD_INSTRUCTIONS");
  if (name == nullptr || *name == '\0') return {};
  return level_of_name(name);
}

}  // namespace

std::string_view instruction_level_name(InstructionLevel level) {
  switch (level) {
    case InstructionLevel::kV2:
      return "x86-64-v2";
    case InstructionLevel::kV3:
      return "x86-64-v3";
    case InstructionLevel::kV4:
      return "x86-64-v4";
    case InstructionLevel::kArmV8:
      return "armv8-a";
    case InstructionLevel::kArmDotprod:
      return "armv8.2-a+dotprod";
    default:
      return "armv8.2-a+i8mm";
  }
}

std::optional<InstructionLevel> instruction_limit() {
  static const std::optional<InstructionLevel> limit = read_limit();
  return limit;
}

bool has_vnni() {
#ifdef __x86_64__
  static const bool has = __builtin_cpu_supports("avx512vnni") && !instruction_limit();
  return has;
#else
  return false;
#endif
}

bool has_avx_vnni() {
#ifdef __x86_64__
  // Not every compiler's __builtin_cpu_supports() knows it: CPUID, leaf 7, part 1.
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return !instruction_limit() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
           (a >> 4 & 1) != 0;
  }();
  return has;
#else
  return false;
#endif
}

#if defined(STEELYARD_LEVELS) || defined(__aarch64__)
InstructionLevel instruction_level() {
  static const InstructionLevel highest = usable_levels().back();
  return instruction_limit().value_or(highest);
}

std::string instructions_text() { return std::string(instruction_level_name(instruction_level())); }
#else
std::string instructions_text() { return "of the build"; }
#endif

}  // namespace steelyard::kernels
