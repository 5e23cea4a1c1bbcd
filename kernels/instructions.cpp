#include "steelyard/kernels/instructions.h"

#include <cstdlib>
#include <stdexcept>
#ifdef STEELYARD_LEVELS
#include <vector>

#include "steelyard/kernels/cpu/levels.h"
#endif

namespace steelyard::kernels {
namespace {

#ifdef STEELYARD_LEVELS
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

// The levels of the build that the processor has and the operating system lets programs use, lowest
// first.
std::vector<InstructionLevel> usable_levels() {
  std::vector<InstructionLevel> levels;
  for (const BuiltLevel& built : built_levels()) {
    if (processor_has(built.level)) levels.push_back(built.level);
  }
  if (levels.empty()) {
    throw std::runtime_error("[instructions] expected a processor with the instructions of " +
                             std::string(instruction_level_name(built_levels().front().level)) +
                             ", got an older one");
  }
  return levels;
}

InstructionLevel level_of_name(const std::string& name) {
  std::string expected;
  for (const InstructionLevel level : usable_levels()) {
    if (instruction_level_name(level) == name) return level;
    expected += (expected.empty() ? "" : " or ") + std::string(instruction_level_name(level));
  }
  throw std::invalid_argument("[instructions] expected STEELYARD_INSTRUCTIONS to be " + expected +
                              " in this build and on this processor, got '" + name + "'");
}
#else
InstructionLevel level_of_name(const std::string& name) {
  throw std::invalid_argument(
      "[instructions] expected no STEELYARD_INSTRUCTIONS in a build whose kernels were compiled "
      "once, got '" +
      name + "'");
}
#endif

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
    default:
      return "x86-64-v4";
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

#ifdef STEELYARD_LEVELS
InstructionLevel instruction_level() {
  static const InstructionLevel highest = usable_levels().back();
  return instruction_limit().value_or(highest);
}

std::string instructions_text() { return std::string(instruction_level_name(instruction_level())); }
#else
std::string instructions_text() { return "of the build"; }
#endif

}  // namespace steelyard::kernels
